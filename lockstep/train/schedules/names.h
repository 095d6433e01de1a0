#pragma once

#include <initializer_list>
#include <map>
#include <string>
#include <type_traits>
#include <utility>
#include <vector>

#include "lockstep/train/schedules/learning_rate.h"

namespace lockstep::schedules {

// An argument of a schedule: a number (true and false are 1 and 0), or a list of them.
class Argument {
 public:
  template <typename T>
  requires std::is_arithmetic_v<T> Argument(T value) : values_{static_cast<double>(value)}, is_list_(false) {}  // NOLINT
  Argument(std::initializer_list<double> values) : values_(values) {}
  Argument(std::vector<double> values) : values_(std::move(values)) {}  // NOLINT

  const std::vector<double>& values() const noexcept { return values_; }
  bool is_list() const noexcept { return is_list_; }

 private:
  std::vector<double> values_;
  bool is_list_ = true;
};
using Arguments = std::map<std::string, Argument>;

// The schedule of that name, Keras's ("CosineDecay") or ours ("cosine_decay"), with Keras's arguments, which are the fields of
// its options:
//
//   schedule_by_name("cosine_decay", {{"initial_learning_rate", 0.1}, {"decay_steps", 1000}})
//
// Throws kInvalidArgument for a name of a schedule or an argument that does not exist, offering the nearest, for an argument
// that Keras demands and is missing, and for what makes no schedule.
LearningRate schedule_by_name(const std::string& name, const Arguments& arguments);

// All names, in order.
std::vector<std::string> schedule_names();

}  // namespace lockstep::schedules

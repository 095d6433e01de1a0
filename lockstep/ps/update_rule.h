#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "lockstep/fwd.h"
#include "lockstep/variable/named_tensors.h"

namespace lockstep::ps {

// What a rule has learned: tensors of the variable's shape ("exp_avg"), and numbers ("step", "steps", "learning_rate").
struct RuleState {
  NamedTensors tensors = {};
  std::vector<std::pair<std::string, double>> numbers = {};
};

// How gradients change one variable on its server: an optimizer, with the state that it keeps for this variable. Used by one
// thread at a time. `value` is the variable each time: dense, contiguous, of the shape and dtype that the rule was made for.
class UpdateRule {
 public:
  virtual ~UpdateRule() = default;

  virtual void apply(at::Tensor& value, const at::Tensor& gradient) = 0;
  // Only rows `ids` (int64, may repeat) have a gradient: rows[k] is of row ids[k]. All ids must be rows of the value.
  virtual void apply_rows(at::Tensor& value, const at::Tensor& ids, const at::Tensor& rows) = 0;
  // Memory that an update with so many bytes of gradient may take beyond what is in use, for new state and while it runs. Who
  // asks before knows that an update that has begun is not stopped half-way for want of it.
  virtual std::size_t room_for(std::size_t gradient_bytes) const = 0;

  // Of the tensors that it keeps or will keep.
  virtual std::size_t state_bytes() const noexcept = 0;

  virtual double learning_rate() const = 0;        // of the next update
  virtual bool has_schedule() const noexcept = 0;  // that gives it
  // Throws kInvalidArgument for what is no rate, and when a schedule gives it.
  virtual void set_learning_rate(double rate) = 0;

  virtual std::int64_t steps() const noexcept = 0;  // updates so far
  // Shares the tensors' memory with the rule: they are as they are until the next update.
  virtual RuleState state() const = 0;
  // Copies it. Throws kInvalidArgument, before anything is changed, for one of another kind of rule or another shape.
  virtual void load_state(const RuleState& state) = 0;
};

// `spec` is text that describes an optimizer with its options. Throws kInvalidArgument or kUnimplemented when there is no such
// rule for such a value.
using RuleFactory = std::function<std::unique_ptr<UpdateRule>(const std::string& spec, const at::Tensor& value)>;

}  // namespace lockstep::ps

#pragma once

#include <initializer_list>
#include <optional>
#include <string>
#include <utility>
#include <vector>

namespace lockstep {

// Values by name, in the order in which they are shown: loss, accuracy, val_loss, ...
class Logs {
 public:
  using Entry = std::pair<std::string, double>;

  Logs() = default;
  Logs(std::initializer_list<Entry> entries) : entries_(entries) {}

  // Throws kInvalidArgument for a name that is not there, saying which are.
  double at(const std::string& name) const;
  std::optional<double> find(const std::string& name) const;
  // A new name comes last.
  void set(const std::string& name, double value);
  // All of the other's, each with `prefix` before its name.
  void add(const Logs& other, const std::string& prefix = "");

  bool empty() const noexcept { return entries_.empty(); }
  std::size_t size() const noexcept { return entries_.size(); }
  auto begin() const noexcept { return entries_.begin(); }
  auto end() const noexcept { return entries_.end(); }

  friend bool operator==(const Logs&, const Logs&) = default;

 private:
  std::vector<Entry> entries_;
};

// "loss: 0.4213 - accuracy: 0.8512".
std::string show(const Logs& logs);

// What fit() returns: the logs of every epoch.
struct History {
  std::vector<int> epoch = {};
  std::vector<Logs> logs = {};  // as many

  // One value over the epochs that have it. Throws kInvalidArgument when none has.
  std::vector<double> at(const std::string& name) const;
};

}  // namespace lockstep

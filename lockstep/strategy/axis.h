#pragma once

#include <cstdint>
#include <initializer_list>
#include <optional>
#include <utility>
#include <vector>

namespace lockstep {

// The dimensions that a reduction also goes over inside each replica: none, one or several. Negative ones count from
// the end.
class Axis {
 public:
  Axis() = default;
  Axis(std::nullopt_t) {}                                              // NOLINT: implicit on purpose
  Axis(int axis) : axes_(std::vector<std::int64_t>{axis}) {}           // NOLINT
  Axis(std::int64_t axis) : axes_(std::vector<std::int64_t>{axis}) {}  // NOLINT
  Axis(std::initializer_list<std::int64_t> axes) : axes_(std::vector<std::int64_t>(axes)) {}
  Axis(std::vector<std::int64_t> axes) : axes_(std::move(axes)) {}  // NOLINT

  bool is_given() const { return axes_.has_value(); }
  const std::vector<std::int64_t>& axes() const { return *axes_; }

 private:
  std::optional<std::vector<std::int64_t>> axes_;
};

}  // namespace lockstep

#pragma once

#include <utility>

namespace lockstep {

// Calls `f` when it goes out of scope.
template <typename F>
class [[nodiscard]] OnExit {
 public:
  explicit OnExit(F f) : f_(std::move(f)) {}
  ~OnExit() { f_(); }
  OnExit(const OnExit&) = delete;
  OnExit& operator=(const OnExit&) = delete;

 private:
  F f_;
};

}  // namespace lockstep

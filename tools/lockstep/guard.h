#pragma once

#include <sys/types.h>

namespace lockstep::tool {

// A small process beside this one that outlives it by a moment: when this process is gone, it kills the groups that were
// still watched. (The system itself would end only the direct children of a process that was killed.)
class Guard {
 public:
  // Started by the first call. REQUIRES: no other thread runs then.
  static Guard& of_this_process();

  Guard(const Guard&) = delete;
  Guard& operator=(const Guard&) = delete;

  void watch(pid_t group) const noexcept;
  void forget(pid_t group) const noexcept;

 private:
  Guard();

  int orders_ = -1;  // closed by this process's end
};

}  // namespace lockstep::tool

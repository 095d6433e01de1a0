#pragma once

#include <csignal>
#include <vector>

namespace lockstep::tool {

// The signals that ask for the end (SIGINT, SIGTERM, SIGHUP), as something to wait for; news of children wake too. The
// process's own handling is put back afterwards.
class Signals {
 public:
  Signals();
  ~Signals();
  Signals(const Signals&) = delete;
  Signals& operator=(const Signals&) = delete;

  int descriptor() const noexcept { return descriptor_; }
  // Those that came and ask for the end.
  std::vector<int> take() const;

 private:
  int descriptor_ = -1;
  sigset_t previous_ = {};
};

}  // namespace lockstep::tool

#pragma once

#include <mutex>
#include <shared_mutex>

namespace lockstep::ps {

// A shared mutex that lets nobody wait for ever: who comes later than a writer comes after it. (The system's own lets readers
// pass a waiting writer, which then never has its turn while there are always some.)
class TurnMutex {
 public:
  void lock() {
    const std::lock_guard turn(turn_);
    mu_.lock();
  }
  void unlock() { mu_.unlock(); }
  void lock_shared() {
    const std::lock_guard turn(turn_);
    mu_.lock_shared();
  }
  void unlock_shared() { mu_.unlock_shared(); }

 private:
  std::mutex turn_;
  std::shared_mutex mu_;
};

}  // namespace lockstep::ps

#pragma once

#include <atomic>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <mutex>
#include <string>
#include <utility>
#include <vector>

#include "lockstep/fwd.h"

namespace lockstep::ps {

// What a server may use for variables. A system that gives memory it does not have ends the process that uses it: so this is
// asked before. Thread-safe.
class Memory {
 public:
  // 0: all that the machine (or the control group) has.
  explicit Memory(std::size_t most_bytes) : most_bytes_(most_bytes) {}

  // Bytes that count as used while it lives. The memory must outlive it.
  class Reservation {
   public:
    Reservation() = default;
    Reservation(Memory& memory, std::size_t bytes) : memory_(&memory), bytes_(bytes) {}
    ~Reservation() {
      if (memory_ != nullptr) memory_->used_ -= bytes_;
    }
    Reservation(Reservation&& other) noexcept : memory_(std::exchange(other.memory_, nullptr)), bytes_(other.bytes_) {}
    Reservation& operator=(Reservation&& other) noexcept {
      std::swap(memory_, other.memory_);
      std::swap(bytes_, other.bytes_);
      return *this;
    }
    std::size_t bytes() const noexcept { return bytes_; }

   private:
    Memory* memory_ = nullptr;
    std::size_t bytes_ = 0;
  };

  // Throw kUnavailable, "out of memory", naming what it was for, when it cannot be had.
  Reservation reserve(std::size_t bytes, const std::string& what);
  void require(std::size_t bytes, const std::string& what) const;

 private:
  void require_on_machine(std::size_t bytes, const std::string& what) const;

  // Const after construction.
  const std::size_t most_bytes_;
  // Own synchronisation.
  std::atomic<std::size_t> used_{0};

  mutable std::mutex mu_;
  // Guarded by mu_: what the machine had when it was looked at last.
  mutable std::chrono::steady_clock::time_point looked_;
  mutable std::size_t free_then_ = 0;
  mutable std::size_t used_then_ = 0;
};

// A new tensor on the CPU, with whatever is in it. Throws kUnavailable, "out of memory", naming what it was for.
at::Tensor allocate(const std::vector<std::int64_t>& shape, std::int8_t dtype, const std::string& what);

}  // namespace lockstep::ps

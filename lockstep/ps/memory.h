#pragma once

#include <atomic>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <mutex>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "lockstep/base/error.h"
#include "lockstep/fwd.h"

namespace lockstep::ps {

// What memory is asked for. What lasts (a variable) is refused for good, kFailedPrecondition; what passes (an update on its
// way) may have room when it comes again, kUnavailable.
enum class MemoryUse { kLasts, kPasses };

// "out of memory: " and the text.
Error no_memory(MemoryUse use, const std::string& text);

// What a server may use for variables. A system that gives memory it does not have ends the process that uses it: so this is
// asked before. Thread-safe.
class Memory {
 public:
  // Has memory that it can do without.
  class Reserve {
   public:
    virtual ~Reserve() = default;
    // Called when memory is short, on any thread; must not ask for memory.
    virtual void give_back() = 0;
  };

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

  // Throw "out of memory", naming what it was for, when it cannot be had: see MemoryUse.
  Reservation reserve(std::size_t bytes, const std::string& what, MemoryUse use);
  void require(std::size_t bytes, const std::string& what, MemoryUse use);

  // It must be taken away before it ends; that waits while it gives back.
  void add(Reserve& reserve);
  void remove(Reserve& reserve);

 private:
  // What is free, when that is less than these bytes.
  std::optional<std::size_t> too_little_for(std::size_t bytes);
  std::optional<std::size_t> too_little_on_machine_for(std::size_t bytes);

  // Const after construction.
  const std::size_t most_bytes_;
  // Own synchronisation.
  std::atomic<std::size_t> used_{0};

  std::mutex mu_;
  // Guarded by mu_: what the machine had when it was looked at last.
  std::chrono::steady_clock::time_point looked_;
  std::size_t free_then_ = 0;
  std::size_t used_then_ = 0;

  std::mutex reserves_mu_;
  // Guarded by reserves_mu_.
  std::vector<Reserve*> reserves_;
};

// A new tensor on the CPU, with whatever is in it. Throws "out of memory", naming what it was for: see MemoryUse.
at::Tensor allocate(const std::vector<std::int64_t>& shape, std::int8_t dtype, const std::string& what, MemoryUse use);

}  // namespace lockstep::ps

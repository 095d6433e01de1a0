#pragma once

#include <atomic>
#include <chrono>
#include <cstdint>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <vector>

#include "lockstep/base/error.h"
#include "lockstep/base/gate.h"

namespace lockstep {

// How long anything waits for the others when nothing else is said, and how often it says so meanwhile.
inline constexpr std::chrono::minutes kDefaultTimeout(30);
inline constexpr std::chrono::seconds kWarnEvery(30);

// A meeting point of the threads of one process.
//
// Note [meeting points]
// 1. Every participant (rank) calls meet() with the name of the point it has reached. The last one to come checks
//    that all names are equal and lets everybody go on; the others wait until then.
// 2. A participant whose work is over calls leave(). If somebody waits for it, or comes to a point later, the points
//    do not match: everybody who waits gets kFailedPrecondition, which says who is where and who has left.
// 3. abort() lets everybody who waits, and everybody who comes later, fail with kAborted.
// 4. A wait longer than the timeout fails with kDeadlineExceeded and names the missing ranks; every 30 seconds before
//    that a warning is logged. Not so in a wait that somebody else watches.
// 5. After an error nobody passes until reset(), which is called when no thread is inside.
class Rendezvous {
 public:
  // `who`: what a rank is called in messages ("replica").
  Rendezvous(int size, std::string who);

  int size() const noexcept { return size_; }

  // kWatched: somebody else watches the time, and will end what the others are at.
  enum class Patience { kOwn, kWatched };
  // Blocks until all participants are at the point `name`. Throws as the note says. `name` is kept by pointer until
  // everybody has passed: use a literal.
  void meet(int rank, const char* name, Patience patience = Patience::kOwn);

  void leave(int rank) noexcept;
  void abort(const std::string& reason) noexcept;
  bool is_broken() const noexcept { return broken_.load(std::memory_order_acquire); }

  // Forgets who left and what failed. Only while no participant is inside.
  void reset() noexcept;

  void set_timeout(std::chrono::nanoseconds timeout) noexcept { timeout_.store(timeout.count()); }

  // While it lives, the calling thread waits at most this long at any rendezvous, and in any call to other workers; 0: as
  // long as those say.
  class TimeoutScope {
   public:
    explicit TimeoutScope(std::chrono::nanoseconds timeout) noexcept;
    ~TimeoutScope();
    TimeoutScope(const TimeoutScope&) = delete;
    TimeoutScope& operator=(const TimeoutScope&) = delete;

    // The calling thread's; 0: none.
    static std::chrono::nanoseconds current() noexcept;

   private:
    std::chrono::nanoseconds previous_;
  };

 private:
  struct alignas(64) Place {
    std::atomic<const char*> point{nullptr};  // where this rank waits; null: not waiting
    std::atomic<std::uint64_t> passed{0};     // how many points it has passed since reset()
    std::atomic<bool> has_left{false};
  };

  void pass_all();
  void wait_for_others(int rank, std::uint32_t generation);
  void break_with(ErrorCode code, const std::string& message) noexcept;
  void fail_on_mismatch();
  [[noreturn]] void throw_broken(int rank);
  std::string describe_places() const;
  std::string missing(const char* name) const;

  // Const after construction.
  const int size_;
  const std::string who_;
  const std::unique_ptr<Place[]> places_;

  // Own synchronisation.
  std::atomic<std::int64_t> timeout_;
  std::atomic<int> arrived_{0};
  std::atomic<int> left_{0};
  std::atomic<bool> broken_{false};
  Gate generation_;

  // Guarded by mu_.
  std::mutex mu_;
  std::optional<Error> failure_;
};

}  // namespace lockstep

#pragma once

#include <chrono>
#include <cstdint>
#include <deque>
#include <map>
#include <mutex>
#include <optional>
#include <string>
#include <vector>

namespace lockstep {

// One collective as this worker sees it.
struct Call {
  std::uint64_t number = 0;  // counted from 1
  std::uint64_t step = 0;    // run() calls with a collective in them, counted from 1; 0: before the first
  std::string text;          // "all_reduce of 2 tensors, float32 [64, 10] first"
  std::chrono::system_clock::time_point begun = {};
  std::chrono::steady_clock::time_point since = {};  // the same, by a clock that nobody sets
  std::chrono::nanoseconds timeout = {};             // of its own; 0: as long as all calls
  std::optional<double> seconds = std::nullopt;      // it took; nothing: it has not ended
  std::string error = "";
};

// What this worker's collectives are and were: the last thousand, and those that are under way. Thread-safe.
class Calls {
 public:
  static constexpr std::size_t kKept = 1000;
  static constexpr std::uint64_t kUnnumbered = std::uint64_t{1} << 62;

  // A call that is under way while it lives.
  class [[nodiscard]] Scope {
   public:
    // Not numbered: a wait that other workers may not have.
    Scope(Calls& calls, std::string text, bool is_numbered = true, std::chrono::nanoseconds timeout = {})
        : calls_(calls), number_(calls.begin(std::move(text), is_numbered, timeout)) {}
    ~Scope() { calls_.end(number_, error_); }
    Scope(const Scope&) = delete;
    Scope& operator=(const Scope&) = delete;
    void fail(const std::string& error) { error_ = error; }
    std::uint64_t number() const { return number_; }

   private:
    Calls& calls_;
    const std::uint64_t number_;
    std::string error_;
  };

  // The next call belongs to a new step.
  void begin_step();
  std::uint64_t step() const;
  // Counts on from `step`, where that is later: the workers have found that they count differently.
  void catch_up(std::uint64_t step);
  // How many numbered calls have begun.
  std::uint64_t count() const;

  std::vector<Call> under_way() const;
  std::vector<Call> last() const;
  // "all_reduce ... #12", or what the worker does between two calls: "code after all_reduce ... #12".
  std::string describe() const;

  // The last calls as JSON lines, for `lockstep inspect`. `clock_offset` is added to the times: another machine's clock.
  std::string flight_record(const std::string& task, std::chrono::nanoseconds clock_offset = {}) const;

 private:
  std::uint64_t begin(std::string text, bool is_numbered, std::chrono::nanoseconds timeout);
  void end(std::uint64_t number, const std::string& error);

  // Guarded by mu_.
  mutable std::mutex mu_;
  std::uint64_t count_ = 0;
  std::uint64_t unnumbered_ = kUnnumbered;
  std::uint64_t step_ = 0;
  bool is_step_new_ = false;
  std::map<std::uint64_t, Call> open_;
  std::deque<Call> ended_;
};

}  // namespace lockstep

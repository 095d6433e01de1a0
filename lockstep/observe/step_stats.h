#pragma once

#include <array>
#include <chrono>
#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "lockstep/base/wait_clock.h"

namespace lockstep {

// What a step's time goes into.
enum class StepPhase : std::uint8_t { kInput, kCompute, kSync, kCheckpoint, kOther };
inline constexpr std::size_t kStepPhases = 5;

// "input", "compute", "sync", "checkpoint", "other".
const char* name_of(StepPhase phase) noexcept;

// Where one worker's time went in one step, in seconds: what the workers tell each other, five doubles.
//
// kSync is the time in which it waited for other workers. Whoever waits least in a step is whom the others wait for: that
// needs no clocks that agree.
struct StepTimes {
  std::array<double, kStepPhases> seconds = {};

  double& operator[](StepPhase phase) { return seconds[static_cast<std::size_t>(phase)]; }
  double operator[](StepPhase phase) const { return seconds[static_cast<std::size_t>(phase)]; }
  double total() const;

  // For WorkerGroup::exchange(). from_bytes throws kDataLoss for anything else.
  std::string to_bytes() const;
  static StepTimes from_bytes(std::string_view bytes);
};

// Divides a thread's time between phases; what it waits for other workers meanwhile (base/wait_clock.h) is kSync, whatever the
// phase. Used by the thread that calls run().
class StepClock {
 public:
  using Clock = std::chrono::steady_clock;

  // What follows is `phase`, until the next call.
  void enter(StepPhase phase) { enter(phase, Clock::now()); }
  // The step's times; the next step begins, in the same phase.
  StepTimes end_step() { return end_step(Clock::now()); }
  // The same with a given moment.
  void enter(StepPhase phase, Clock::time_point now);
  StepTimes end_step(Clock::time_point now);

 private:
  StepTimes times_;
  StepPhase phase_ = StepPhase::kOther;
  Clock::time_point since_ = Clock::now();
  std::chrono::nanoseconds waited_ = WaitClock::total();
};

// Somebody the others waited for.
struct Straggler {
  int worker = 0;
  std::int64_t steps = 0;  // in so many
  double part = 0;         // of all steps
  double seconds = 0;      // each, what the others lost on average
  // What it spent more time on than they did; kSync: nothing of its own, the time was lost between the workers.
  StepPhase cause = StepPhase::kCompute;
};

// The steps of an epoch, by worker. Pure: the same on all workers that add the same.
class StepStats {
 public:
  // Throws kInvalidArgument for fewer than 1.
  explicit StepStats(int workers);

  // One step, by worker. Throws kInvalidArgument for another number of workers.
  void add(std::span<const StepTimes> by_worker);

  int workers() const noexcept { return static_cast<int>(totals_.size()); }
  std::int64_t steps() const noexcept { return steps_; }
  // Of all steps.
  const StepTimes& total(int worker) const { return totals_.at(static_cast<std::size_t>(worker)); }

  // Who was waited for in at least a tenth of the steps, whoever cost most first. A step counts when the others lost more
  // than 0.2 ms and 2 % of it.
  std::vector<Straggler> stragglers() const;

  // A line for each worker, with seconds a step; then for each straggler
  // "worker 2 was waited for in 81 % of steps, 34 ms each: input".
  std::string summary() const;
  // Only the latter; nothing when nobody was waited for.
  std::string straggler_lines() const;

  // For an EventWriter, with the epoch as step; `lockstep report` draws its breakdown from them. Tag and value:
  // "step_breakdown/worker0/input" in seconds, "step_breakdown/worker0/steps".
  std::vector<std::pair<std::string, double>> scalars() const;

  void reset();

 private:
  struct Waits {
    std::int64_t steps = 0;
    double seconds = 0;                           // lost by the others on average
    std::array<double, kStepPhases> beyond = {};  // its time minus the others'
  };

  std::int64_t steps_ = 0;
  std::vector<StepTimes> totals_;
  std::vector<Waits> waits_;
};

// What the tags of StepStats::scalars() begin with; the text of straggler_lines() has the tag kStragglersTag.
inline constexpr char kStepBreakdown[] = "step_breakdown/";
inline constexpr char kStragglersTag[] = "step_breakdown/stragglers";

}  // namespace lockstep

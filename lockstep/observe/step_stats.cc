#include "lockstep/observe/step_stats.h"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <iomanip>
#include <numeric>
#include <sstream>

#include "lockstep/base/error.h"
#include "lockstep/base/str.h"

namespace lockstep {
namespace {

// Waits below both are noise.
constexpr double kLeastWait = 0.0002;
constexpr double kLeastPart = 0.02;
constexpr double kLeastSteps = 0.1;
constexpr double kLeastExplained = 0.25;

constexpr std::array kPhases = {StepPhase::kInput, StepPhase::kCompute, StepPhase::kSync, StepPhase::kCheckpoint,
                                StepPhase::kOther};
static_assert(kPhases.size() == kStepPhases);

// "34 ms", "0.42 ms", "2.1 s": two or three digits.
std::string duration(double seconds) {
  std::ostringstream out;
  const bool is_long = seconds >= 1;
  const double value = is_long ? seconds : seconds * 1000;
  out << std::fixed << std::setprecision(value >= 9.95 ? 0 : value >= 0.995 ? 1 : 2) << value << (is_long ? " s" : " ms");
  return out.str();
}

}  // namespace

const char* name_of(StepPhase phase) noexcept {
  constexpr std::array kNames = {"input", "compute", "sync", "checkpoint", "other"};
  return kNames[static_cast<std::size_t>(phase)];
}

double StepTimes::total() const { return std::accumulate(seconds.begin(), seconds.end(), 0.0); }

std::string StepTimes::to_bytes() const { return {reinterpret_cast<const char*>(seconds.data()), sizeof seconds}; }

StepTimes StepTimes::from_bytes(std::string_view bytes) {
  StepTimes times;
  if (bytes.size() != sizeof times.seconds)
    throw Error(ErrorCode::kDataLoss, str("the times of a step have ", bytes.size(), " bytes, not ", sizeof times.seconds,
                                          "; do all workers run one "
                                          "version of Lockstep?"));
  std::memcpy(times.seconds.data(), bytes.data(), bytes.size());
  return times;
}

void StepClock::enter(StepPhase phase, Clock::time_point now) {
  const auto waited = WaitClock::total();
  const double sync = std::chrono::duration<double>(waited - waited_).count();
  times_[phase_] += std::chrono::duration<double>(now - since_).count() - sync;
  times_[StepPhase::kSync] += sync;
  since_ = now;
  waited_ = waited;
  phase_ = phase;
}

StepTimes StepClock::end_step(Clock::time_point now) {
  enter(phase_, now);
  return std::exchange(times_, {});
}

StepStats::StepStats(int workers) {
  if (workers < 1) throw Error(ErrorCode::kInvalidArgument, str("StepStats: ", workers, " workers; there must be at least 1"));
  totals_.resize(static_cast<std::size_t>(workers));
  waits_.resize(static_cast<std::size_t>(workers));
}

void StepStats::add(std::span<const StepTimes> by_worker) {
  if (by_worker.size() != totals_.size())
    throw Error(ErrorCode::kInvalidArgument,
                str("StepStats: the times of ", by_worker.size(), " workers were given, and there are ", totals_.size()));
  ++steps_;
  for (std::size_t w = 0; w < by_worker.size(); ++w)
    for (const auto phase : kPhases) totals_[w][phase] += by_worker[w][phase];
  if (by_worker.size() < 2) return;
  const auto wait = [](const StepTimes& times) { return times[StepPhase::kSync]; };
  const auto late = static_cast<std::size_t>(std::ranges::min_element(by_worker, {}, wait) - by_worker.begin());
  const auto others = static_cast<double>(by_worker.size() - 1);
  std::array<double, kStepPhases> beyond = {};
  for (const auto phase : kPhases) {
    double sum = 0;
    for (std::size_t w = 0; w < by_worker.size(); ++w) sum += w == late ? 0 : by_worker[w][phase];
    beyond[static_cast<std::size_t>(phase)] = by_worker[late][phase] - sum / others;
  }
  const double lost = -beyond[static_cast<std::size_t>(StepPhase::kSync)];
  if (lost < kLeastWait || lost < kLeastPart * by_worker[late].total()) return;
  Waits& waits = waits_[late];
  ++waits.steps;
  waits.seconds += lost;
  for (std::size_t p = 0; p < kStepPhases; ++p) waits.beyond[p] += beyond[p];
}

std::vector<Straggler> StepStats::stragglers() const {
  std::vector<Straggler> all;
  for (std::size_t w = 0; w < waits_.size(); ++w) {
    const Waits& waits = waits_[w];
    if (waits.steps == 0 || static_cast<double>(waits.steps) < kLeastSteps * static_cast<double>(steps_)) continue;
    const auto count = static_cast<double>(waits.steps);
    auto beyond = waits.beyond;
    // The least of all, that is why it was found. It is the cause where its other times explain too little of what was lost.
    beyond[static_cast<std::size_t>(StepPhase::kSync)] = kLeastExplained * waits.seconds;
    const auto cause = std::ranges::max_element(beyond) - beyond.begin();
    all.push_back({static_cast<int>(w), waits.steps, count / static_cast<double>(steps_), waits.seconds / count,
                   static_cast<StepPhase>(cause)});
  }
  const auto cost = [](const Straggler& one) { return -one.seconds * static_cast<double>(one.steps); };
  std::ranges::stable_sort(all, {}, cost);
  return all;
}

std::string StepStats::straggler_lines() const {
  std::string lines;
  for (const auto& one : stragglers())
    lines += str("worker ", one.worker, " was waited for in ", std::lround(100 * one.part), " % of steps, ",
                 duration(one.seconds), " each: ", name_of(one.cause),
                 one.cause == StepPhase::kSync ? " itself (a slow network, or a busy machine)" : "", "\n");
  return lines;
}

std::string StepStats::summary() const {
  constexpr int kColumn = 12;
  std::ostringstream out;
  out << std::left << std::setw(kColumn) << "each step" << std::right;
  for (const auto phase : kPhases) out << std::setw(kColumn) << name_of(phase);
  out << std::setw(kColumn) << "all"
      << "   (" << steps_ << " steps)\n";
  const auto each = static_cast<double>(std::max<std::int64_t>(steps_, 1));
  for (std::size_t w = 0; w < totals_.size(); ++w) {
    out << std::left << std::setw(kColumn) << str("worker ", w) << std::right;
    for (const auto phase : kPhases) out << std::setw(kColumn) << duration(totals_[w][phase] / each);
    out << std::setw(kColumn) << duration(totals_[w].total() / each) << "\n";
  }
  return out.str() + straggler_lines();
}

std::vector<std::pair<std::string, double>> StepStats::scalars() const {
  std::vector<std::pair<std::string, double>> all;
  for (std::size_t w = 0; w < totals_.size(); ++w) {
    const auto worker = str(kStepBreakdown, "worker", w, "/");
    for (const auto phase : kPhases) all.emplace_back(worker + name_of(phase), totals_[w][phase]);
    all.emplace_back(worker + "steps", static_cast<double>(steps_));
  }
  return all;
}

void StepStats::reset() { *this = StepStats(workers()); }

}  // namespace lockstep

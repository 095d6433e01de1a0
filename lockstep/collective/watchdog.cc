#include "lockstep/collective/watchdog.h"

#include <algorithm>
#include <cmath>

#include "lockstep/base/log.h"
#include "lockstep/base/str.h"
#include "lockstep/base/thread.h"

namespace lockstep {
namespace {

constexpr std::chrono::milliseconds kTick(100);
constexpr double kAskEvery = 0.4;   // seconds, while a call waits
constexpr double kPatience = 0.25;  // seconds in a call before other machines are asked whether they answer
constexpr double kQuiet = 2;        // seconds without a heartbeat: a worker is stopped, or cut off
constexpr double kSilent = 1.2;     // seconds that a question costs when nobody answers
constexpr double kFresh = 5;        // seconds for which it is believed that nobody answers
constexpr double kOnItsWay = 10;    // seconds after its end for which what a worker has sent may still come

double seconds(std::chrono::nanoseconds duration) { return std::chrono::duration<double>(duration).count(); }
std::string rounded(double value) {
  const auto tenths = static_cast<std::int64_t>(std::llround(value * 10));
  return str(tenths / 10, ".", tenths % 10);
}

double waited_since(std::chrono::steady_clock::time_point begun) { return seconds(std::chrono::steady_clock::now() - begun); }

// With "#12" for numbered calls.
std::string name_of(const Call& call) {
  return call.number < Calls::kUnnumbered ? str("'", call.text, "' #", call.number, " of step ", call.step)
                                          : str("'", call.text, "' of step ", call.step);
}

std::string account_of(const Member& member, double age) {
  const auto& who = member.introduction;
  const auto& does = member.activity;
  return str(who.task, " on host '", who.host, "' (process ", who.pid, "), ",
             member.has_left ? str("which has ended")
                             : str("which does: ", does.doing.empty() ? "nothing yet" : does.doing, ", step ", does.step,
                                   ", heard of ", rounded(age), " s ago"));
}

}  // namespace

Activity activity_of(const Calls& calls) { return {static_cast<std::int64_t>(calls.step()), calls.describe(), calls.count()}; }

Watchdog::Watchdog(const Calls& calls, Setup setup) : calls_(calls), setup_(std::move(setup)) {
  thread_ = start_thread("lockstep:dog", [this](const std::stop_token& stop) { watch(stop); });
}

Watchdog::~Watchdog() {
  thread_.request_stop();
  ending_.advance();
}

void Watchdog::watch(const std::stop_token& stop) {
  while (!stop.stop_requested()) {
    ending_.doze(0, kTick);
    try {
      setup_.tell(activity_of(calls_));
      const auto under_way = calls_.under_way();
      std::erase_if(warned_at_, [&](const auto& entry) {
        return std::ranges::none_of(under_way, [&](const Call& call) { return call.number == entry.first; });
      });
      if (is_cut_off(under_way)) return;
      if (under_way.empty()) asked_at_ = 0;
      else look_at(under_way[0], waited_since(under_way[0].since));
    } catch (const std::exception& error) {
      log_warning(str("the watch over collectives: ", error.what()));
    }
  }
}

bool Watchdog::is_cut_off(const std::vector<Call>& under_way) {
  if (!setup_.reach) return false;
  const double waited = under_way.empty() ? 0 : waited_since(under_way[0].since);
  const auto silent = setup_.reach(waited > kPatience);
  if (silent.empty()) return false;
  setup_.fail(Error(ErrorCode::kUnavailable,
                    str(silent, " cannot be reached from ", setup_.me, ": ", head_of(under_way[0], waited),
                        ", and no packet comes back; look at the link and the firewalls between the two machines")));
  return true;
}

void Watchdog::look_at(const Call& call, double waited) {
  if (waited < asked_at_) {  // another call
    asked_at_ = 0;
    silence_.clear();
  }
  auto& warned = warned_at_[call.number];
  const double warns_at = std::max(seconds(setup_.stall_warning), 2 * warned);
  const double timeout = seconds(call.timeout.count() > 0 ? call.timeout : setup_.timeout);
  const double due_in = std::min(warns_at, timeout) - waited;
  const bool is_late = waited >= timeout;
  const bool is_stalled = waited >= warns_at;
  // A coordinator that is stopped costs a second at each question: what is due does not wait for it.
  const bool is_silent = !silence_.empty() && waited - asked_at_ < kFresh;
  if (due_in > 0 && (waited - asked_at_ < kAskEvery || (is_silent && due_in < kSilent))) return;
  const bool asks = due_in > 0 || !is_silent;
  if (asks) asked_at_ = waited;
  std::string left;
  const auto text = asks ? describe(call, waited, left) : str(head_of(call, waited), silence_);
  if (!left.empty()) return setup_.fail(Error(ErrorCode::kUnavailable, str(left, " has ended and will not come: ", text)));
  if (is_late)
    return setup_.fail(
        Error(ErrorCode::kDeadlineExceeded, str(text, "; CommunicationOptions::timeout_seconds sets the limit")));
  if (!is_stalled) return;
  warned = waited;
  log_warning(text);
}

std::string Watchdog::head_of(const Call& call, double waited) const {
  return str(setup_.me, " has waited ", rounded(waited), " s at ", name_of(call));
}

std::string Watchdog::describe(const Call& call, double waited, std::string& left) {
  const auto head = head_of(call, waited);
  ClusterView view;
  try {
    view = setup_.look();
    silence_.clear();
  } catch (const Error& error) {
    silence_ = str("; ", setup_.workers[0], ", the coordinator, does not answer (", error.message(),
                   "): it is stopped, or its machine cannot be reached");
    return str(head, silence_);
  }
  std::vector<std::string> arrived;
  std::vector<std::string> missing;
  std::vector<std::string> silent;
  // Whoever is furthest behind is named first: the others may wait for it.
  std::ranges::stable_sort(view.members, {}, [](const Member& member) { return member.activity.calls; });
  for (const auto& member : view.members) {
    const auto task = str(member.introduction.task);
    if (std::ranges::count(setup_.workers, task) == 0) continue;
    const bool is_numbered = call.number < Calls::kUnnumbered;
    const bool is_here = task == setup_.me || (is_numbered ? member.activity.calls >= call.number
                                                           : member.activity.step >= static_cast<std::int64_t>(call.step));
    const auto age = seconds(std::chrono::steady_clock::now() - member.last_heard);
    const bool has_ended = member.has_left && task != setup_.me;
    if (is_here && !(has_ended && age > kOnItsWay)) {
      arrived.push_back(task);
      if (task != setup_.me && !has_ended && age > kQuiet) silent.push_back(account_of(member, age));
      continue;
    }
    if (has_ended && left.empty()) left = task;
    missing.push_back(account_of(member, age));
  }
  std::ranges::sort(arrived);
  if (missing.empty() && !silent.empty())
    return str(head, "; all have arrived, and then stopped or were cut off: ", join("; ", silent));
  return str(head, "; arrived: ", join(", ", arrived), "; missing: ",
             missing.empty() ? str("nobody (all have arrived, the data is still on its way)") : join("; ", missing));
}

}  // namespace lockstep

#include "lockstep/ps/failure_rules.h"

#include <algorithm>

#include "lockstep/base/log.h"
#include "lockstep/base/number.h"
#include "lockstep/base/str.h"
#include "lockstep/ps/task_error.h"

namespace lockstep::ps {
namespace {

std::int64_t number_of(const Environment& environment, const std::string& name, std::int64_t otherwise) {
  const auto text = environment.get(name);
  if (!text) return otherwise;
  const auto number = whole_number(*text);
  if (!number) throw Error(ErrorCode::kInvalidArgument, str(name, "='", *text, "' is not a whole number"));
  return *number;
}

}  // namespace

FailureRules::FailureRules(const Environment& environment, int num_workers)
    : ps_threshold_(number_of(environment, "TF_COORDINATOR_IGNORE_TRANSIENT_PS_FAILURES", 3)),
      timeout_threshold_(number_of(environment, "TF_COORDINATOR_IGNORE_TRANSIENT_TIMEOUTS", num_workers / 10)),
      delay_(number_of(environment, "TF_COORDINATOR_SCHEDULE_START_DELAY", 0)),
      most_delay_(number_of(environment, "TF_COORDINATOR_SCHEDULE_START_DELAY_MAX", 0)) {}

std::exception_ptr FailureRules::judge(const closures::Outcome& failed, const std::string& which) {
  const auto text = str(failed.text, " (", which, ")");
  const TaskError error(failed.code, failed.task, text);
  const bool is_away = failed.code == ErrorCode::kUnavailable || failed.code == ErrorCode::kAborted;
  if (is_away && error.is_of_parameter_server()) {
    std::int64_t reports = 0;
    {
      const std::lock_guard lock(mu_);
      reports = ++ps_failures_[failed.task];
    }
    if (reports >= ps_threshold_)
      return std::make_exception_ptr(PsUnavailable(failed.task, str(text, " (report ", reports, " of its absence)")));
    log_warning(str(failed.task, " was away (", failed.text, "), report ", reports, " of at most ", ps_threshold_ - 1,
                    " that are forgiven: the closure is run again"));
    return nullptr;
  }
  if (failed.code == ErrorCode::kDeadlineExceeded && forgives_timeout()) return nullptr;
  // A call of the closure's to another task was ended there, not here.
  if (failed.code == ErrorCode::kCancelled && !failed.task.empty()) return nullptr;
  if (!failed.task.empty()) return std::make_exception_ptr(error);
  return std::make_exception_ptr(Error(failed.code, text));
}

bool FailureRules::forgives_timeout() {
  const std::lock_guard lock(mu_);
  return ++timeouts_ < timeout_threshold_;
}

std::chrono::nanoseconds FailureRules::start_delay(int worker) const {
  const auto delay = delay_ * worker;
  return std::chrono::seconds(most_delay_ > 0 ? std::min(delay, most_delay_) : delay);
}

void Attendance::arrive(const std::string& worker) {
  const std::lock_guard lock(mu_);
  missing_.erase(worker);
}

void Attendance::leave(const std::string& worker, const std::string& why) {
  const std::lock_guard lock(mu_);
  if (!missing_.insert(worker).second) return;
  log_warning(
      str("the coordinator has lost ", worker, ", which is used again when it is back; its closures go to others: ", why));
  if (missing_.size() < all_) return;
  deserted_since_ = std::chrono::steady_clock::now();
  log_warning(str("no worker is left, everything waits: ", missing_text()));
}

std::chrono::nanoseconds Attendance::deserted_for() const {
  const std::lock_guard lock(mu_);
  if (missing_.size() < all_) return std::chrono::nanoseconds(0);
  return std::chrono::steady_clock::now() - deserted_since_;
}

void Attendance::remind() {
  const std::lock_guard lock(mu_);
  if (missing_.size() == all_ && reminder_.is_due())
    log_warning(str("no worker has come yet, everything waits: ", missing_text()));
}

std::string Attendance::missing() const {
  const std::lock_guard lock(mu_);
  return missing_.empty() ? "" : missing_text();
}

std::vector<std::string> Attendance::who_is_missing() const {
  const std::lock_guard lock(mu_);
  return {missing_.begin(), missing_.end()};
}

std::string Attendance::missing_text() const { return "waiting for " + join(", ", missing_); }

}  // namespace lockstep::ps

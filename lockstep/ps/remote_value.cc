#include "lockstep/ps/remote_value.h"

#include "lockstep/base/error.h"

namespace lockstep::ps {

void ResultSlot::set(RemoteValueStatus status, std::exception_ptr error) noexcept {
  const std::lock_guard lock(mu_);
  status_ = status;
  error_ = std::move(error);
  changed_.notify_all();
}

void ResultSlot::set_cancelled() noexcept {
  set(RemoteValueStatus::kReady,
      std::make_exception_ptr(
          Error(ErrorCode::kCancelled, "the function was cancelled, because another one failed first: schedule it again")));
}

void ResultSlot::set_aborted() noexcept {
  set(RemoteValueStatus::kAborted,
      std::make_exception_ptr(
          Error(ErrorCode::kCancelled, "the function was aborted, because its coordinator ended first: schedule it again")));
}

RemoteValueStatus ResultSlot::status() const {
  const std::lock_guard lock(mu_);
  return status_;
}

void ResultSlot::wait(const Deadline& deadline) const {
  std::unique_lock lock(mu_);
  if (!changed_.wait_until(lock, deadline.time(), [&] { return status_ != RemoteValueStatus::kNotReady; }))
    throw Error(ErrorCode::kDeadlineExceeded, "a scheduled function has not ended in time");
  if (error_) std::rethrow_exception(error_);
}

}  // namespace lockstep::ps

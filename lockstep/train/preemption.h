#pragma once

#include <chrono>
#include <functional>
#include <memory>
#include <optional>

#include "lockstep/fwd.h"

namespace lockstep::internal {

// While the token lives, SIGTERM does not end this process but is kept for whoever asks. What was there before comes back with
// its end; a signal that nobody has acted on by then is not repeated. A second SIGTERM ends the process, unless it comes within
// kSameNotice. Several tokens share one handler.
std::shared_ptr<void> listen_for_preemption();

// Schedulers tell every process of a job, and launchers pass on what they are told: within this time it is one notice.
inline constexpr std::chrono::seconds kSameNotice(3);

// Whether this process was told to go, since the first of the tokens that live; and when.
bool is_preempted() noexcept;
std::optional<std::chrono::steady_clock::time_point> preempted_at() noexcept;

// Calls `exit_fn`, or, where there is none, ends the process with kPreemptedExitCode. All workers call it when their training
// is on the disk (null: there are no others); whoever goes first disturbs nobody.
void leave_together(WorkerGroup* workers, const std::function<void()>& exit_fn);

}  // namespace lockstep::internal

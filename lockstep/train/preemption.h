#pragma once

#include <memory>

namespace lockstep::internal {

// While the token lives, SIGTERM does not end this process but is kept for whoever asks. What was there before comes back with
// its end; a signal that nobody has acted on by then is not repeated. A second SIGTERM ends the process. Several tokens share
// one handler.
std::shared_ptr<void> listen_for_preemption();

// Whether this process was told to go, since the first of the tokens that live.
bool is_preempted() noexcept;

}  // namespace lockstep::internal

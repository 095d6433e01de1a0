#include "lockstep/ps/sync_worker.h"

#include <ATen/ATen.h>

#include <algorithm>
#include <condition_variable>
#include <mutex>
#include <set>

#include "lockstep/base/error.h"
#include "lockstep/base/random.h"
#include "lockstep/base/str.h"
#include "lockstep/ps/fields.h"

namespace lockstep::ps {
namespace {

constexpr std::size_t kArbiter = 0;

// An arbiter that has no thread for one more that waits answers at once. Nobody wakes it.
void pause() {
  std::mutex mu;
  std::condition_variable never;
  std::unique_lock lock(mu);
  never.wait_for(lock, std::chrono::milliseconds(2), [] { return false; });
}

}  // namespace

SyncWorker::SyncWorker(ParameterClient& client, const SyncOptions& options)
    : client_(client), options_(options), number_(unguessable_number()) {}

void SyncWorker::throw_late(const StepState& state) const {
  std::set<std::uint32_t> from;
  for (const auto& one : state.counted) from.insert(one.worker);
  const auto list = [](const auto& workers) { return workers.empty() ? std::string("nobody") : join(", ", workers); };
  throw Error(ErrorCode::kDeadlineExceeded,
              str("step ", state.step, " of model '", options_.model, "' has ", state.counted.size(), " of ",
                  options_.gradients_per_step, " gradients, of workers: ", list(from),
                  state.is_closed ? "; it could not be applied" : str("; working on it: ", list(state.working)), ", after ",
                  std::chrono::duration<double>(options_.timeout).count(), " s"));
}

StepState SyncWorker::wait(const std::optional<std::uint32_t>& worker) {
  const auto deadline = Deadline::after(options_.timeout);
  const auto question = to_bytes(StepLookRequest{options_.model, worker});
  std::optional<std::uint64_t> closed;
  auto help_at = Deadline::Clock::now();
  for (;;) {
    auto state = from_bytes<StepState>(client_.call(kArbiter, methods::kStepLook, question, deadline));
    if (state.may_begin) return state;
    if (deadline.has_passed()) throw_late(state);
    pause();
    if (!state.is_closed) continue;
    if (closed != state.step) {
      closed = state.step;
      help_at = Deadline::Clock::now() + options_.help_after;
    } else if (Deadline::Clock::now() >= help_at) {
      finish(state, deadline);
    }
  }
}

void SyncWorker::begin() { step_ = wait(options_.worker.value()).step; }

bool SyncWorker::push(const std::vector<ParameterClient::Update>& updates) {
  if (!step_) begin();
  const auto deadline = Deadline::after(options_.timeout);
  const auto step = *std::exchange(step_, std::nullopt);
  const Contribution mine{options_.worker.value(), number_, ++contributions_};
  const ParameterClient::Sending held{methods::kStepHold, methods::kStepStage,
                                      [&](const Sender& sender, const std::vector<Operation>& operations) {
                                        return to_bytes(StepHoldRequest{sender, options_.model, step, mine, operations});
                                      }};
  std::uint64_t next = 0;
  for (const auto& reply : client_.send(updates, held, deadline)) next = std::max(next, from_bytes<StepHoldReply>(reply).next);
  if (next > step) correct_arbiter(next, deadline);
  const StepCommitRequest commit{options_.model, step, mine, options_.gradients_per_step};
  const auto answer = from_bytes<StepCommitReply>(client_.call(kArbiter, methods::kStepCommit, to_bytes(commit), deadline));
  if (answer.is_counted && answer.state.is_closed && answer.state.step == step) finish(answer.state, deadline);
  return answer.is_counted;
}

void SyncWorker::finish(const StepState& closed, const Deadline& deadline) {
  client_.call_all(methods::kStepApply, to_bytes(StepApplyRequest{options_.model, closed.step, closed.counted}), deadline);
  client_.call(kArbiter, methods::kStepOpen, to_bytes(StepOpenRequest{options_.model, closed.step}), deadline);
}

void SyncWorker::correct_arbiter(std::uint64_t next, const Deadline& deadline) {
  const auto question = to_bytes(StepLookRequest{options_.model});
  const auto state = from_bytes<StepState>(client_.call(kArbiter, methods::kStepLook, question, deadline));
  if (state.is_closed || state.step >= next) return;  // it is being applied, or was
  client_.call(kArbiter, methods::kStepOpen, to_bytes(StepOpenRequest{options_.model, next - 1}), deadline);
}

}  // namespace lockstep::ps

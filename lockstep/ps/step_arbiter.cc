#include "lockstep/ps/step_arbiter.h"

#include <algorithm>

#include "lockstep/base/error.h"
#include "lockstep/base/str.h"
#include "lockstep/ps/fields.h"

namespace lockstep::ps {
namespace {

using std::chrono::milliseconds;

// Who waits has a thread of the server: not for long, and not all of them.
constexpr milliseconds kLongestWait(200);
constexpr milliseconds kLookAgain(2);  // patience ends without a sign
constexpr int kMostWaiting = 16;
constexpr std::size_t kLongestName = 1'024;

bool has_repeats(const std::vector<Contribution>& counted) {
  std::vector<std::uint32_t> workers;
  for (const auto& one : counted) workers.push_back(one.worker);
  std::ranges::sort(workers);
  return std::ranges::adjacent_find(workers) != workers.end();
}

}  // namespace

StepArbiter::Model& StepArbiter::model_of(const std::string& name) {
  if (const auto found = models_.find(name); found != models_.end()) return found->second;
  if (name.empty() || name.size() > kLongestName)
    throw Error(ErrorCode::kInvalidArgument,
                str("steps of a model whose name has ", name.size(), " bytes; it has 1 to ", kLongestName));
  if (models_.size() >= kMostModels)
    throw Error(ErrorCode::kInvalidArgument, str("steps of model '", name, "': this server knows ", models_.size(),
                                                 " models already; at most ", kMostModels));
  return models_[name];
}

std::chrono::nanoseconds StepArbiter::longest_work(const Model& model) const {
  if (!model.usual) return options_.straggler;
  return std::min(options_.straggler, std::max(options_.patience, *model.usual * 8));
}

void StepArbiter::note_end(Model& model, std::uint32_t worker) const {
  const auto found = model.working.find(worker);
  if (found == model.working.end()) return;
  const std::chrono::nanoseconds took = Clock::now() - found->second;
  model.usual = model.usual ? (*model.usual * 7 + took) / 8 : took;
  model.working.erase(found);
}

bool StepArbiter::may_begin(const Model& model, const std::optional<std::uint32_t>& worker) const {
  if (model.is_closed) return false;
  const auto is_mine = [&](const Contribution& one) { return one.worker == *worker; };
  if (!worker || std::ranges::none_of(model.counted, is_mine)) return true;
  const auto now = Clock::now();
  const bool is_worked_on = std::ranges::any_of(
      model.working, [&](const auto& one) { return one.first != *worker && now - one.second < longest_work(model); });
  // Somebody is missing since the last step: he is waited for less each time, down to a thousandth.
  const auto patience = model.repeats > 0 ? options_.patience / (16 << std::min(model.repeats - 1, 6)) : options_.patience;
  return !is_worked_on && now - model.changed >= patience;
}

StepState StepArbiter::state_of(const Model& model) const {
  StepState state{model.step, model.is_closed, false, model.counted};
  std::ranges::sort(state.counted);
  for (const auto& [worker, since] : model.working) state.working.push_back(worker);
  return state;
}

StepState StepArbiter::look(const StepLookRequest& request) {
  std::unique_lock lock(mu_);
  auto& model = model_of(request.model);
  if (waiting_ < kMostWaiting) {
    ++waiting_;
    const auto until = Clock::now() + kLongestWait;
    while (!may_begin(model, request.worker) && Clock::now() < until)
      changed_.wait_until(lock, std::min(until, Clock::now() + kLookAgain));
    --waiting_;
  }
  auto state = state_of(model);
  state.may_begin = may_begin(model, request.worker);
  if (state.may_begin && request.worker) model.working[*request.worker] = model.changed = Clock::now();
  return state;
}

bool StepArbiter::decide(Model& model, const StepCommitRequest& request) {
  if (request.step > model.step) {  // this server was started again, and has lost its place
    model.step = request.step;
    model.is_closed = false;
    model.counted.clear();
  }
  if (request.step < model.step || model.is_closed) return false;
  model.counted.push_back(request.from);
  model.is_closed = model.counted.size() >= request.needed;
  return true;
}

StepCommitReply StepArbiter::commit(const StepCommitRequest& request) {
  if (request.needed < 1 || request.needed > kMostNeeded)
    throw Error(ErrorCode::kInvalidArgument, str("step ", request.step, " of model '", request.model, "' with ", request.needed,
                                                 " gradients; it has 1 to ", kMostNeeded));
  const std::lock_guard lock(mu_);
  auto& model = model_of(request.model);
  auto& verdicts = model.verdicts;
  const auto& from = request.from;
  auto found = verdicts.find(from.client);
  if (found != verdicts.end() && from.number < found->second.number)
    throw Error(ErrorCode::kFailedPrecondition, str("contribution ", from.number, " of worker ", from.worker,
                                                    " came late: it has sent number ", found->second.number, " already"));
  if (found == verdicts.end() || from.number > found->second.number) {
    if (found == verdicts.end() && verdicts.size() >= kMostClients)
      verdicts.erase(std::ranges::min_element(verdicts, {}, [](const auto& one) { return one.second.when; }));
    note_end(model, from.worker);
    model.changed = Clock::now();
    found = verdicts.insert_or_assign(from.client, Verdict{from.number, decide(model, request), model.changed}).first;
    changed_.notify_all();
  }
  return {found->second.is_counted, state_of(model)};
}

void StepArbiter::open(const StepOpenRequest& request) {
  const std::lock_guard lock(mu_);
  auto& model = model_of(request.model);
  if (request.step < model.step || request.step + 1 == 0) return;
  model.repeats = has_repeats(model.counted) ? std::min(model.repeats + 1, 7) : 0;
  model.step = request.step + 1;
  model.is_closed = false;
  model.counted.clear();
  model.changed = Clock::now();
  changed_.notify_all();
}

std::map<std::string, Method> StepArbiter::methods() {
  namespace names = lockstep::ps::methods;
  return {
      {names::kStepLook, {[this](Incoming& request, Outgoing& reply) {
         reply.fields = to_bytes(look(from_bytes<StepLookRequest>(request.fields())));
       }}},
      {names::kStepCommit,
       {[this](Incoming& request, Outgoing& reply) {
          reply.fields = to_bytes(commit(from_bytes<StepCommitRequest>(request.fields())));
        },
        HandlerKind::kQuick}},
      {names::kStepOpen,
       {[this](Incoming& request, Outgoing&) { open(from_bytes<StepOpenRequest>(request.fields())); }, HandlerKind::kQuick}},
  };
}

}  // namespace lockstep::ps

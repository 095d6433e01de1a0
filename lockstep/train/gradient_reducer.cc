#include "lockstep/train/gradient_reducer.h"

#include <ATen/ATen.h>

#include <algorithm>
#include <ranges>

#include "lockstep/base/error.h"
#include "lockstep/base/log.h"
#include "lockstep/base/str.h"
#include "lockstep/base/trace.h"
#include "lockstep/collective/worker_group.h"
#include "lockstep/replica/replica_context.h"
#include "lockstep/train/gradient_state.h"
#include "lockstep/variable/gradient_hooks.h"

namespace lockstep {

GradientReducer::State::State(std::shared_ptr<ModuleReplicas> of, const GradientOptions& with)
    : model(std::move(of)), options(with), can_overlap(with.overlap), replicas(model->size()) {
  if (options.bucket_bytes < 1)
    throw Error(ErrorCode::kInvalidArgument,
                str("GradientOptions: bucket_bytes is ", options.bucket_bytes, "; it must be at least 1"));
  place = model->take_gradients([this] { retire(); });
  for (std::size_t replica = 0; replica < model->size(); ++replica) {
    auto& slots = replicas[replica].slots;
    for (const auto& [name, parameter] : model->named_parameters(replica)) {
      if (replica == 0) names.push_back(name);
      slots.push_back({parameter});
    }
    replicas[replica].kinds.resize(slots.size());
    for (std::size_t i = 0; i < slots.size(); ++i) watch(replica, i);
  }
  if (model->replicas() != nullptr)
    observer = model->replicas()->observe_runs(
        {.before = [this] { forget_losses(), recover(), rehook(); }, .failed = [this] { after_failed_run(); }});
}

void GradientReducer::State::hook(std::size_t replica, std::size_t index) {
  Slot& slot = replicas[replica].slots[index];
  const ReplicaStreams::Use stream(model->replicas() == nullptr ? std::nullopt : model->replicas()->streams().of(replica));
  slot.hooks.clear();
  slot.hooks.push_back(internal::before_gradient(slot.parameter, [this, replica] { before(replica); }));
  slot.hooks.push_back(internal::on_gradient_ready(
      slot.parameter, [this, replica, index](const at::Tensor& incoming) { after(replica, index, incoming); }));
  slot.accumulator = internal::accumulator_of(slot.parameter);
  slot.kind = slot.parameter.options();
}

void GradientReducer::State::watch(std::size_t replica, std::size_t index) {
  Slot& slot = replicas[replica].slots[index];
  if (!slot.parameter.requires_grad()) return;
  if (slot.hooks.empty()) return hook(replica, index);
  if (!slot.has_lost_hooks()) return;
  if (!slot.is_same_kind())
    throw Error(ErrorCode::kFailedPrecondition,
                lockstep::str("parameter '", names[index], "' of ", model->name(),
                              " got another dtype or device after the optimizer was made (it is ", slot.parameter.scalar_type(),
                              " on ", slot.parameter.device(), " now); make the optimizer after model->to(...)"));
  hook(replica, index);
}

void GradientReducer::State::rehook() {
  for (std::size_t replica = 0; replica < replicas.size(); ++replica)
    for (std::size_t i = 0; i < replicas[replica].slots.size(); ++i)
      if (const Slot& slot = replicas[replica].slots[i]; slot.has_lost_hooks() && slot.is_same_kind()) hook(replica, i);
}

void GradientReducer::State::retire() {
  for (std::size_t replica = 0; replica < replicas.size(); ++replica) drop_stale(replica);
  for (auto& replica : replicas)
    for (auto& slot : replica.slots) slot.hooks.clear();
  observer.reset();
  is_retired = true;
}

void GradientReducer::State::take_unseen(std::size_t replica) {
  auto& slots = replicas[replica].slots;
  for (std::size_t i = 0; i < slots.size(); ++i) {
    watch(replica, i);
    const auto& gradient = slots[i].parameter.grad();
    if (slots[i].has_gradient || slots[i].hooks.empty() || !gradient.defined()) continue;
    if (gradient.sizes() != slots[i].parameter.sizes())
      throw Error(ErrorCode::kInvalidArgument,
                  lockstep::str("the gradient that was set for parameter '", names[i], "' of ", model->name(), " has shape ",
                                gradient.sizes(), ", the parameter ", slots[i].parameter.sizes(), "; they must be equal"));
    slots[i].has_gradient = slots[i].was_reached = true;
  }
}

std::pair<std::size_t, std::size_t> GradientReducer::State::replicas_here() const {
  const auto here = model->index_here();
  return model->is_in_replica() ? std::pair(here, here + 1) : std::pair(std::size_t{0}, replicas.size());
}

std::vector<std::string> GradientReducer::State::unused() const {
  std::vector<std::string> result;
  for (std::size_t i = 0; i < names.size(); ++i) {
    const bool is_reached = (i < was_reached_somewhere.size() && was_reached_somewhere[i]) ||
                            std::ranges::any_of(replicas, [&](const Replica& replica) { return replica.slots[i].was_reached; });
    if (replicas[0].slots[i].parameter.requires_grad() && !is_reached) result.push_back(names[i]);
  }
  return result;
}

void GradientReducer::State::begin_step(Replica& mine) {
  mine.is_synchronized = false;
  mine.has_stale = true;
  for (std::size_t b = 0; b < mine.missing.size(); ++b) mine.missing[b] = static_cast<int>(buckets[b].members.size());
  for (auto& slot : mine.slots) {
    slot.has_gradient = false;
    slot.fired = 0;
    slot.sparse_sum.reset();
    slot.stale = slot.parameter.grad();
    slot.stale_version = slot.stale.defined() ? internal::version_of(slot.stale) : 0;
  }
}

void GradientReducer::State::reset(std::uint64_t last_step) {
  if (exchange) exchange->reset(last_step);
  for (auto& replica : replicas) begin_step(replica);
}

void GradientReducer::State::forget_losses() {
  for (auto& replica : replicas) replica.has_lost = false;
}

void GradientReducer::State::after_failed_run() {
  for (auto& replica : replicas)
    replica.has_lost = std::ranges::any_of(replica.slots, [](const Slot& slot) { return slot.has_gradient; });
  if (workers() != nullptr && !workers()->failure()) has_failed_run = true;
  else reset();
  const auto [fewest, most] = std::ranges::minmax(replicas | std::views::transform(&Replica::steps));
  if (fewest == most) return;
  log(LogLevel::kError, str("a replica failed between synchronize() and step() of ", model->name(),
                            ": some copies have made the step and others have not; load saved weights before the next run()"));
  for (auto& replica : replicas) replica.steps = most;
}

void GradientReducer::State::synchronize(std::size_t replica, ReplicaContext& context, Group& group) {
  const auto plan_together = [&] {
    context.replicas().merge(context, "planning the gradient buckets", nullptr, [&](std::span<void* const>) { plan(); });
  };
  complete(replica);
  agree(context, group);
  if (!exchange) {
    plan_together();
    fill_slots(replica);
    group.barrier("the first step with these gradient buckets");
  }
  exchange->finish(replica);
  const bool is_plan_old = has_new_gradient();
  reduce_unplanned(replica, group);
  // A gradient that came in no replica is absent, as it would be in one process: the optimizer passes the parameter by.
  for (std::size_t i = 0; i < names.size(); ++i)
    if (auto& slot = replicas[replica].slots[i]; kind_of_all(i) == GradientKind::kNone && !slot.hooks.empty())
      slot.parameter.mutable_grad().reset();
  group.barrier("the end of optimizer.step()'s sums");
  exchange->begin_step(replica);
  take_sparse_sums(replica);
  if (is_plan_old) plan_together();
}

GradientReducer::GradientReducer(std::shared_ptr<ModuleReplicas> model, const GradientOptions& options)
    : state_(std::make_unique<State>(std::move(model), options)) {}

// Sums of the last step must not become part of the next optimizer's gradients.
GradientReducer::~GradientReducer() { state_->retire(); }

void GradientReducer::synchronize() {
  State& s = *state_;
  const auto replica = s.model->index_here();
  auto& mine = s.replicas[replica];
  if (mine.is_synchronized) return;
  if (s.is_retired)
    throw Error(ErrorCode::kFailedPrecondition,
                str("another optimizer was made for ", s.model->name(),
                    " after this one, and gradients go to the newest; use that one, or make this one again"));
  if (s.model->replicas() != nullptr && !s.model->is_in_replica())
    throw Error(ErrorCode::kFailedPrecondition, str("the gradients of ", s.model->name(),
                                                    " are brought together by all replicas: call optimizer.step() or "
                                                    "synchronize() inside the function given to run()"));
  if (mine.has_lost)
    throw Error(ErrorCode::kFailedPrecondition,
                str("the gradients of ", s.model->name(),
                    " were dropped when a run() inside merge_call failed; call backward() again, in a new run()"));
  s.model->note_synchronized(replica);
  s.before(replica);  // what the last step left is not used again by one that does not reach the parameter
  s.take_unseen(replica);
  if (s.replicas.size() > 1 || s.workers() != nullptr) {
    const trace::Span span("gradients", trace::Category::kSync);
    ReplicaContext& context = replica_context();
    Group& group = context.replicas().group(context.local_replica_id());
    s.synchronize(replica, context, group);
  } else {
    s.report_unused();
  }
  mine.is_synchronized = true;
}

void GradientReducer::end_step() {
  auto& mine = state_->replicas[state_->model->index_here()];
  state_->begin_step(mine);
  ++mine.steps;
}

void GradientReducer::discard() {
  State& s = *state_;
  const auto [begin, end] = s.replicas_here();
  // Sums that have begun can be dropped when no replica runs, and whether those of other workers do is not known here.
  const bool may_drop_sums = !s.model->is_in_replica() && s.workers() == nullptr;
  for (auto replica = begin; replica < end && !may_drop_sums; ++replica) s.require_unpublished(replica);
  for (auto replica = begin; replica < end; ++replica)
    for (auto& slot : s.replicas[replica].slots) slot.parameter.mutable_grad().reset();
  if (may_drop_sums) return s.reset();
  for (auto replica = begin; replica < end; ++replica) s.begin_step(s.replicas[replica]);
}

void GradientReducer::State::require_unpublished(std::size_t replica) const {
  for (const auto& slot : replicas[replica].slots)
    if (slot.fired > 0 && slot.is_planned() && exchange->is_published(replica, slot.bucket))
      throw Error(ErrorCode::kFailedPrecondition,
                  "zero_grad() was called between backward() and step(), after the gradients' sum over the replicas had begun; "
                  "call it before backward(); a backward() of another model's loss belongs under this optimizer's no_sync()");
}

void GradientReducer::enter_no_sync() {
  const auto [begin, end] = state_->replicas_here();
  for (auto replica = begin; replica < end; ++replica) {
    state_->model->note_synchronized(replica);
    ++state_->replicas[replica].no_sync;
  }
}

void GradientReducer::exit_no_sync() {
  const auto [begin, end] = state_->replicas_here();
  for (auto replica = begin; replica < end; ++replica) --state_->replicas[replica].no_sync;
}

std::vector<std::string> GradientReducer::unused_parameters() const { return state_->unused(); }

std::uint64_t GradientReducer::plan_number() const { return state_->plans; }

bool GradientReducer::is_unchanged_since(std::uint64_t plan) const {
  const auto waits = [](const State::Replica& replica) {
    return replica.no_sync > 0 || std::ranges::any_of(replica.slots, [](const auto& slot) { return slot.has_gradient; });
  };
  return !state_->is_retired && state_->plans == plan && std::ranges::none_of(state_->replicas, waits);
}

}  // namespace lockstep

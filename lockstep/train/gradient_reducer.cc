#include "lockstep/train/gradient_reducer.h"

#include <torch/torch.h>

#include <set>

#include "lockstep/base/error.h"
#include "lockstep/base/log.h"
#include "lockstep/base/str.h"
#include "lockstep/collective/bucket_exchange.h"
#include "lockstep/collective/bucket_plan.h"
#include "lockstep/collective/indexed_slices.h"
#include "lockstep/collective/reduce_values.h"
#include "lockstep/replica/mode.h"
#include "lockstep/replica/replica_context.h"
#include "lockstep/variable/gradient_hooks.h"

namespace lockstep {
namespace {

enum class Kind : std::uint8_t { kNone, kDense, kSparse };

constexpr std::size_t kNoBucket = SIZE_MAX;

}  // namespace

// Note [gradient step]
// 1. Before a gradient is accumulated, a gradient left from the last step is dropped, so that LibTorch hands over the
//    new one without adding.
// 2. After it, the hook moves it into its slot of a bucket, unless it is there already, and makes the parameter's grad
//    share that memory. When a bucket is full it is published.
// 3. synchronize(): a planned gradient that did not come counts as zero; all replicas meet; each sums its chunks; sparse
//    gradients are gathered; all meet again.
// 4. The plan is made at the first synchronize(), from the gradients that came, and again when a new one comes:
//    a parameter whose gradient is sparse never gets a dense slot.
struct GradientReducer::State {
  struct Slot {
    at::Tensor parameter;
    at::Tensor gradient;  // over the bucket's memory; undefined: not planned
    std::size_t bucket = kNoBucket;
    bool is_stale = false;      // the gradient belongs to the last step
    bool has_gradient = false;  // since the last step
    bool was_reached = false;   // by any backward() so far
    int fired = 0;              // outside no_sync, since the last step
    std::vector<std::shared_ptr<void>> hooks = {};
  };

  struct alignas(64) Replica {
    std::vector<Slot> slots;
    std::vector<Kind> kinds;   // read by all replicas between two meetings
    std::vector<int> missing;  // by bucket: members whose gradient has not come
    int no_sync = 0;
    bool is_synchronized = false;
  };

  State(std::shared_ptr<ModuleReplicas> of, const GradientOptions& with);

  void before(std::size_t replica, std::size_t index);
  void after(std::size_t replica, std::size_t index);
  void attach(Slot& slot);
  void complete(std::size_t replica);
  bool has_new_gradient() const;
  bool was_reached(std::size_t index) const;
  void plan();
  void fill_slots(std::size_t replica);
  Kind kind_of_all(std::size_t index) const;
  void reduce_unplanned(std::size_t replica, Group& group);
  void reduce_dense(std::size_t replica, std::size_t index, Group& group);
  void reduce_sparse(std::size_t replica, std::size_t index, Group& group);
  void scale(std::size_t replica);
  void drop_stale(std::size_t replica);
  void synchronize(std::size_t replica, ReplicaContext& context, Group& group);
  void report_unused();
  void reset();

  // Const after construction.
  const std::shared_ptr<ModuleReplicas> model;
  const GradientOptions options;
  std::vector<std::string> names;

  // Written at meetings by replica 0, while the others wait.
  std::unique_ptr<BucketExchange> exchange;
  std::vector<Bucket> buckets;
  bool can_overlap;
  bool has_reported_unused = false;

  // [r] used only by replica r (kinds: see above).
  std::vector<Replica> replicas;

  std::shared_ptr<void> failure_callback;
};

GradientReducer::State::State(std::shared_ptr<ModuleReplicas> of, const GradientOptions& with)
    : model(std::move(of)), options(with), can_overlap(with.overlap), replicas(model->size()) {
  for (std::size_t replica = 0; replica < model->size(); ++replica) {
    auto& slots = replicas[replica].slots;
    for (const auto& [name, parameter] : model->named_parameters(replica)) {
      if (!parameter.requires_grad()) continue;
      if (replica == 0) names.push_back(name);
      slots.push_back({parameter, {}});
    }
    replicas[replica].kinds.resize(slots.size());
    for (std::size_t i = 0; i < slots.size(); ++i) {
      slots[i].hooks.push_back(internal::before_gradient(slots[i].parameter, [this, replica, i] { before(replica, i); }));
      slots[i].hooks.push_back(internal::on_gradient_ready(slots[i].parameter, [this, replica, i] { after(replica, i); }));
    }
  }
  if (model->replicas() != nullptr) failure_callback = model->replicas()->on_failed_run([this] { reset(); });
}

void GradientReducer::State::before(std::size_t replica, std::size_t index) {
  Slot& slot = replicas[replica].slots[index];
  if (!slot.is_stale) return;
  slot.parameter.mutable_grad().reset();
  slot.is_stale = false;
}

void GradientReducer::State::after(std::size_t replica, std::size_t index) {
  Replica& mine = replicas[replica];
  Slot& slot = mine.slots[index];
  if (exchange && slot.bucket != kNoBucket && exchange->is_published(replica, slot.bucket))
    throw Error(ErrorCode::kFailedPrecondition,
                str("the gradient of parameter '", names[index],
                    "' came twice in one step, after its sum over the replicas had "
                    "begun; call every backward() of a step but the last under optimizer.no_sync(), or set "
                    "GradientOptions::overlap to false"));
  slot.has_gradient = true;
  slot.was_reached = true;
  if (slot.bucket != kNoBucket) attach(slot);
  if (mine.no_sync > 0) return;
  ++slot.fired;
  if (slot.bucket == kNoBucket || slot.fired > 1) return;
  if (--mine.missing[slot.bucket] == 0 && can_overlap) exchange->publish(replica, slot.bucket);
}

// Moves the parameter's gradient into its slot, unless it is there.
void GradientReducer::State::attach(Slot& slot) {
  auto& gradient = slot.parameter.mutable_grad();
  if (!gradient.defined() || gradient.unsafeGetTensorImpl() == slot.gradient.unsafeGetTensorImpl()) return;
  if (gradient.layout() == at::kStrided && gradient.data_ptr() == slot.gradient.data_ptr()) return;
  const c10::NoGradGuard no_grad;
  slot.gradient.copy_(gradient.layout() == at::kSparse ? gradient.to_dense() : gradient);
  gradient = slot.gradient;
}

// Every planned gradient is in its slot; the buckets that were not full are published.
void GradientReducer::State::complete(std::size_t replica) {
  Replica& mine = replicas[replica];
  for (std::size_t i = 0; i < mine.slots.size(); ++i) {
    Slot& slot = mine.slots[i];
    const auto& gradient = slot.parameter.grad();
    mine.kinds[i] = !slot.has_gradient || !gradient.defined() ? Kind::kNone
                    : gradient.layout() == at::kSparse        ? Kind::kSparse
                                                              : Kind::kDense;
  }
  if (exchange) fill_slots(replica);
}

void GradientReducer::State::fill_slots(std::size_t replica) {
  Replica& mine = replicas[replica];
  const c10::NoGradGuard no_grad;
  for (auto& slot : mine.slots) {
    if (slot.bucket == kNoBucket || exchange->is_published(replica, slot.bucket)) continue;
    if (slot.has_gradient) {
      attach(slot);
    } else {
      slot.gradient.zero_();
      slot.parameter.mutable_grad() = slot.gradient;
      slot.is_stale = false;
    }
  }
  for (std::size_t bucket = 0; bucket < exchange->buckets(); ++bucket)
    if (!exchange->is_published(replica, bucket)) exchange->publish(replica, bucket);
}

Kind GradientReducer::State::kind_of_all(std::size_t index) const {
  Kind kind = Kind::kNone;
  for (const auto& replica : replicas) {
    if (replica.kinds[index] == Kind::kDense) return Kind::kDense;
    if (replica.kinds[index] == Kind::kSparse) kind = Kind::kSparse;
  }
  return kind;
}

bool GradientReducer::State::was_reached(std::size_t index) const {
  return std::ranges::any_of(replicas, [&](const Replica& replica) { return replica.slots[index].was_reached; });
}

bool GradientReducer::State::has_new_gradient() const {
  for (std::size_t i = 0; i < names.size(); ++i)
    if (replicas[0].slots[i].bucket == kNoBucket && kind_of_all(i) == Kind::kDense) return true;
  return false;
}

// On replica 0's thread, while all others wait.
void GradientReducer::State::plan() {
  std::vector<GradientInfo> infos;
  std::vector<std::size_t> planned;
  for (std::size_t i = 0; i < names.size(); ++i) {
    const Slot& slot = replicas[0].slots[i];
    if (slot.bucket == kNoBucket && kind_of_all(i) != Kind::kDense) continue;
    const auto& p = slot.parameter;
    infos.push_back({static_cast<int>(p.scalar_type()), 0, p.numel(), static_cast<std::int64_t>(p.element_size())});
    planned.push_back(i);
  }
  buckets = plan_buckets(infos, options.bucket_bytes);
  std::vector<std::vector<at::Tensor>> buffers(replicas.size());
  for (std::size_t r = 0; r < replicas.size(); ++r) {
    replicas[r].missing.clear();
    for (std::size_t b = 0; b < buckets.size(); ++b) {
      auto& members = buckets[b].members;
      const auto& first = replicas[r].slots[planned[members[0].gradient]].parameter;
      auto buffer = at::zeros({buckets[b].elements}, first.options().requires_grad(false));
      buffers[r].push_back(buffer);
      replicas[r].missing.push_back(static_cast<int>(members.size()));
      for (const auto& member : members) {
        Slot& slot = replicas[r].slots[planned[member.gradient]];
        slot.bucket = b;
        // Shares the memory without being a recorded view, which optimizers could not zero. Dense strides keep a
        // channels_last parameter's gradient in its own order.
        const auto& p = slot.parameter;
        const auto strides = p.is_non_overlapping_and_dense() ? p.strides() : at::IntArrayRef(p.contiguous().strides());
        slot.gradient = at::empty({0}, buffer.options()).set_(buffer.storage(), member.offset, p.sizes(), strides);
      }
    }
  }
  // A step in which a gradient came twice cannot begin its sums early.
  for (const auto& replica : replicas)
    for (const auto& slot : replica.slots) can_overlap = can_overlap && slot.fired <= 1;
  exchange = std::make_unique<BucketExchange>(std::move(buffers));
  report_unused();
}

void GradientReducer::State::report_unused() {
  std::vector<std::string> unused;
  for (std::size_t i = 0; i < names.size(); ++i)
    if (!was_reached(i)) unused.push_back(names[i]);
  if (unused.empty() || has_reported_unused) return;
  has_reported_unused = true;
  log_warning(str("parameters of ", model->name(), " that the loss does not depend on, in any replica: ", join(", ", unused),
                  "; they are not changed"));
}

void GradientReducer::State::reduce_unplanned(std::size_t replica, Group& group) {
  for (std::size_t i = 0; i < names.size(); ++i) {
    if (replicas[replica].slots[i].bucket != kNoBucket) continue;
    const Kind kind = kind_of_all(i);
    if (kind == Kind::kDense) reduce_dense(replica, i, group);
    else if (kind == Kind::kSparse) reduce_sparse(replica, i, group);
  }
}

// A gradient that came for the first time after the plan was made, in the step in which it came.
void GradientReducer::State::reduce_dense(std::size_t replica, std::size_t index, Group& group) {
  Slot& slot = replicas[replica].slots[index];
  const c10::NoGradGuard no_grad;
  const Kind kind = replicas[replica].kinds[index];
  auto gradient = kind == Kind::kNone     ? at::zeros(slot.parameter.sizes(), slot.parameter.options().requires_grad(false))
                  : kind == Kind::kSparse ? slot.parameter.grad().to_dense()
                                          : slot.parameter.grad().contiguous();
  group.all_reduce({&gradient, 1}, {&gradient, 1});
  if (options.reduce == ReduceOp::kMean) gradient.div_(static_cast<double>(replicas.size()));
  slot.parameter.mutable_grad() = gradient;
}

void GradientReducer::State::reduce_sparse(std::size_t replica, std::size_t index, Group& group) {
  Slot& slot = replicas[replica].slots[index];
  const auto& p = slot.parameter;
  const c10::NoGradGuard no_grad;
  IndexedSlices mine;
  if (replicas[replica].kinds[index] == Kind::kSparse) {
    mine = from_sparse_tensor(p.grad());
  } else {
    auto sizes = p.sizes().vec();
    sizes[0] = 0;
    mine = {at::empty(sizes, p.options().requires_grad(false)),
            at::empty({0}, p.options().dtype(at::kLong).requires_grad(false)), p.sizes().vec()};
  }
  const auto values = group.all_gather(mine.values.contiguous());
  const auto indices = group.all_gather(mine.indices.contiguous());
  IndexedSlices all{at::cat(values, 0), at::cat(indices, 0), p.sizes().vec()};
  if (options.reduce == ReduceOp::kMean) all.values.div_(static_cast<double>(replicas.size()));
  // A GPU adds repeated rows of a sparse tensor in any order; coalesced, each row stands once and copies stay equal.
  auto sparse = to_sparse_tensor(all);
  slot.parameter.mutable_grad() = p.is_cpu() ? sparse : sparse.coalesce();
}

void GradientReducer::State::scale(std::size_t replica) {
  if (options.reduce == ReduceOp::kSum) return;
  const c10::NoGradGuard no_grad;
  for (std::size_t b = 0; b < exchange->buckets(); ++b)
    at::Tensor(exchange->buffer(replica, b)).div_(static_cast<double>(replicas.size()));
}

void GradientReducer::State::reset() {
  if (exchange) exchange->reset();
  for (auto& replica : replicas) {
    replica.no_sync = 0;
    replica.is_synchronized = false;
    for (std::size_t b = 0; b < replica.missing.size(); ++b) replica.missing[b] = static_cast<int>(buckets[b].members.size());
    for (auto& slot : replica.slots) {
      slot.is_stale = true;
      slot.has_gradient = false;
      slot.fired = 0;
    }
  }
}

// What the last step left must not be used again by a step that does not reach the parameter.
void GradientReducer::State::drop_stale(std::size_t replica) {
  for (auto& slot : replicas[replica].slots) {
    if (!slot.is_stale || slot.has_gradient) continue;
    slot.parameter.mutable_grad().reset();
    slot.is_stale = false;
  }
}

void GradientReducer::State::synchronize(std::size_t replica, ReplicaContext& context, Group& group) {
  const auto plan_together = [&] {
    context.replicas().merge(context, "planning the gradient buckets", nullptr, [&](std::span<void* const>) { plan(); });
  };
  complete(replica);
  group.barrier("optimizer.step()");
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
    if (kind_of_all(i) == Kind::kNone) replicas[replica].slots[i].parameter.mutable_grad().reset();
  group.barrier("the end of optimizer.step()'s sums");
  exchange->begin_step(replica);
  scale(replica);
  if (is_plan_old) plan_together();
}

GradientReducer::GradientReducer(std::shared_ptr<ModuleReplicas> model, const GradientOptions& options)
    : state_(std::make_unique<State>(std::move(model), options)) {}

GradientReducer::~GradientReducer() = default;

void GradientReducer::synchronize() {
  State& s = *state_;
  const auto replica = s.model->index_here();
  auto& mine = s.replicas[replica];
  if (mine.is_synchronized) return;
  if (s.model->replicas() != nullptr && !s.model->is_in_replica())
    throw Error(ErrorCode::kFailedPrecondition, str("the gradients of ", s.model->name(),
                                                    " are brought together by all replicas: call optimizer.step() or "
                                                    "synchronize() inside the function given to run()"));
  s.model->note_synchronized(replica);
  s.drop_stale(replica);
  if (s.replicas.size() > 1) {
    ReplicaContext& context = replica_context();
    Group& group = context.replicas().group(context.local_replica_id());
    s.synchronize(replica, context, group);
  } else {
    s.report_unused();
  }
  mine.is_synchronized = true;
}

bool GradientReducer::is_synchronized() const { return state_->replicas[state_->model->index_here()].is_synchronized; }

void GradientReducer::end_step() {
  auto& mine = state_->replicas[state_->model->index_here()];
  mine.is_synchronized = false;
  for (std::size_t b = 0; b < mine.missing.size(); ++b) mine.missing[b] = static_cast<int>(state_->buckets[b].members.size());
  for (auto& slot : mine.slots) {
    slot.is_stale = true;
    slot.has_gradient = false;
    slot.fired = 0;
  }
}

void GradientReducer::discard() {
  auto& mine = state_->replicas[state_->model->index_here()];
  for (auto& slot : mine.slots)
    if (slot.fired > 0 && slot.bucket != kNoBucket && state_->exchange->is_published(state_->model->index_here(), slot.bucket))
      throw Error(ErrorCode::kFailedPrecondition,
                  "zero_grad() was called between backward() and step(), after the gradients' sum over the replicas had begun; "
                  "call it before backward()");
  end_step();
  for (auto& slot : mine.slots) slot.parameter.mutable_grad().reset();
}

void GradientReducer::enter_no_sync() {
  const auto replica = state_->model->index_here();
  state_->model->note_synchronized(replica);
  ++state_->replicas[replica].no_sync;
}
void GradientReducer::exit_no_sync() { --state_->replicas[state_->model->index_here()].no_sync; }

std::vector<std::string> GradientReducer::unused_parameters() const {
  std::vector<std::string> unused;
  for (std::size_t i = 0; i < state_->names.size(); ++i)
    if (!state_->was_reached(i)) unused.push_back(state_->names[i]);
  return unused;
}

}  // namespace lockstep

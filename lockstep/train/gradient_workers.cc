#include <ATen/ATen.h>

#include <algorithm>
#include <memory>
#include <utility>

#include "lockstep/base/error.h"
#include "lockstep/base/str.h"
#include "lockstep/collective/device_buckets.h"
#include "lockstep/collective/machine_buckets.h"
#include "lockstep/collective/worker_group.h"
#include "lockstep/replica/replica_context.h"
#include "lockstep/train/gradient_state.h"

// Gradients of replicas that are spread over several processes. See Note [buckets of several processes].

namespace lockstep {
namespace {

constexpr std::size_t kLine = 64;
std::size_t rounded(std::size_t bytes) { return (bytes + kLine - 1) / kLine * kLine; }

// Where everything stands in the block of one process: counters, what goes to other machines (the leader's block), and
// the buffers replica by replica.
struct BlockLayout {
  BlockLayout(const MachineBuckets::Shapes& shapes, std::size_t bytes_for_machines)
      : for_machines(rounded(shapes.size() * sizeof(std::uint64_t))), buffers(for_machines + rounded(bytes_for_machines)) {
    for (const auto& shape : shapes) {
      offsets.push_back(replica_bytes);
      replica_bytes += rounded(shape.bytes());
    }
  }
  std::size_t bytes(int replicas) const { return buffers + static_cast<std::size_t>(replicas) * replica_bytes; }
  std::size_t buffer(std::size_t replica, std::size_t bucket) const {
    return buffers + replica * replica_bytes + offsets[bucket];
  }

  std::size_t for_machines;
  std::size_t buffers;
  std::size_t replica_bytes = 0;
  std::vector<std::size_t> offsets = {};
};

// The replicas of some workers as leaves of the tree.
std::vector<SumNode> leaves_of_workers(const WorkerLayout& layout, const std::vector<int>& workers) {
  std::vector<SumNode> leaves;
  for (const int worker : workers)
    for (const auto& leaf : leaves_of(layout.first_replica(worker), layout.replicas[static_cast<std::size_t>(worker)]))
      leaves.push_back(leaf);
  return leaves;
}

}  // namespace

WorkerGroup* GradientReducer::State::workers() const {
  return model->replicas() == nullptr ? nullptr : model->replicas()->workers();
}

// With other workers buckets lie in shared memory, or on GPUs that have an engine; other gradients are summed one by one.
bool GradientReducer::State::can_be_planned(const at::Tensor& parameter) const {
  return workers() == nullptr || parameter.is_cpu() || is_on_gpus();
}

bool GradientReducer::State::is_on_gpus() const {
  if (workers() == nullptr || !workers()->has_device_engine()) return false;
  for (const auto& replica : replicas)
    for (const auto& slot : replica.slots)
      if (!slot.parameter.is_cuda()) return false;
  return true;
}

void GradientReducer::State::agree(ReplicaContext& context, Group& group) {
  if (workers() == nullptr) return group.barrier("optimizer.step()");
  context.replicas().merge(context, "optimizer.step()", nullptr, [&](std::span<void* const>) {
    std::string mine;
    bool is_twice = false;
    for (std::size_t i = 0; i < names.size(); ++i) {
      mine.push_back(static_cast<char>('0' + static_cast<int>(kind_here(i))));
      for (const auto& replica : replicas) is_twice = is_twice || replica.slots[i].fired > 1;
    }
    mine.push_back(is_twice ? '1' : '0');
    agreed_kinds.assign(names.size(), GradientKind::kNone);
    was_reached_somewhere.resize(names.size());
    has_come_twice = false;
    for (const auto& theirs : workers()->exchange(str("optimizer.step() of ", model->name()).c_str(), mine)) {
      if (theirs.size() != mine.size())
        throw Error(ErrorCode::kInvalidArgument,
                    str("optimizer.step(): ", model->name(), " has ", names.size(), " parameters here and ", theirs.size() - 1,
                        " on another worker; all workers must make the same model"));
      for (std::size_t i = 0; i < names.size(); ++i) {
        const auto kind = static_cast<GradientKind>(theirs[i] - '0');
        auto& all = agreed_kinds[i];
        if (kind == GradientKind::kDense || all == GradientKind::kNone) all = kind;
        if (kind != GradientKind::kNone) was_reached_somewhere[i] = true;
      }
      has_come_twice = has_come_twice || theirs.back() == '1';
    }
  });
}

// Workers write into each other's buffers: whoever has planned otherwise must not begin.
std::string GradientReducer::State::plan_text() const {
  std::uint64_t digest = 1469598103934665603U;  // FNV-1a
  const auto add = [&](std::int64_t number) { digest = (digest ^ static_cast<std::uint64_t>(number)) * 1099511628211U; };
  for (const auto& bucket : buckets) {
    add(bucket.elements);
    for (const auto& member : bucket.members) {
      add(static_cast<std::int64_t>(member.gradient));
      add(member.offset);
    }
  }
  for (const auto& slot : replicas[0].slots) {
    add(static_cast<std::int64_t>(slot.parameter.scalar_type()));
    for (const auto stride : slot.parameter.strides()) add(stride);
  }
  return str("planning the gradient buckets of ", model->name(), ": ", buckets.size(), " of at most ", options.bucket_bytes,
             " bytes, ", options.reduce == ReduceOp::kMean ? "mean" : "sum", is_on_gpus() ? ", on GPUs" : "", ", plan ",
             digest);
}

GradientReducer::State::Buffers GradientReducer::State::shared_buffers(const std::vector<std::size_t>& first) const {
  if (is_on_gpus()) return device_buffers(first);
  auto& group = *workers();
  const auto& layout = group.layout();
  MachineBuckets::Shapes shapes;
  for (std::size_t b = 0; b < buckets.size(); ++b)
    shapes.push_back({replicas[0].slots[first[b]].parameter.scalar_type(), buckets[b].elements});
  const auto machine = layout.workers_of(layout.machine());
  const auto leaves = leaves_of_workers(layout, machine);
  const bool is_one_machine = layout.machine_count() == 1;
  const auto subtrees = plan_sums(leaves, layout.total_replicas()).nodes.size();
  const BlockLayout place(shapes, is_one_machine ? 0 : MachineBuckets::bytes_needed(shapes, subtrees));
  group.barrier(plan_text().c_str());
  const auto blocks = group.share(place.bytes(layout.local_replicas()));

  Buffers made;
  std::vector<std::vector<at::Tensor>> all(buckets.size());  // of all the machine's replicas
  made.mine.resize(buckets.size());
  BucketNeighbours neighbours;
  neighbours.memory = blocks;
  neighbours.published = reinterpret_cast<std::atomic<std::uint64_t>*>(blocks->data(0));
  for (std::size_t w = 0; w < machine.size(); ++w) {
    if (machine[w] == layout.rank) neighbours.first = static_cast<int>(all.empty() ? 0 : all[0].size());
    const auto count = static_cast<std::size_t>(layout.replicas[static_cast<std::size_t>(machine[w])]);
    for (std::size_t r = 0; r < count; ++r)
      for (std::size_t b = 0; b < buckets.size(); ++b) {
        all[b].push_back(at::from_blob(
            blocks->data(static_cast<int>(w)) + place.buffer(r, b), {buckets[b].elements}, [blocks](void*) {},
            at::TensorOptions(shapes[b].dtype)));
        if (machine[w] == layout.rank) made.mine[b].push_back(all[b].back());
      }
  }
  if (!is_one_machine) {
    MachineBuckets::Setup setup{str("the gradients of ", model->name()), shapes, leaves};
    setup.memory = blocks->data(0) + place.for_machines;
    setup.keeps = blocks;
    setup.channel = group.new_channel();
    for (int m = 0; m < layout.machine_count(); ++m)
      setup.brings.push_back(plan_sums(leaves_of_workers(layout, layout.workers_of(m)), layout.total_replicas()).nodes);
    neighbours.carrier = std::make_shared<MachineBuckets>(group, std::move(setup));
  }
  const int divisor = options.reduce == ReduceOp::kMean ? layout.total_replicas() : 1;
  made.exchange = std::make_unique<BucketExchange>(std::move(all), layout.local_replicas(), divisor, std::move(neighbours));
  return made;
}

// See Note [buckets on GPUs].
GradientReducer::State::Buffers GradientReducer::State::device_buffers(const std::vector<std::size_t>& first) const {
  auto& group = *workers();
  group.barrier(plan_text().c_str());
  Buffers made;
  for (std::size_t b = 0; b < buckets.size(); ++b) {
    auto& of_bucket = made.mine.emplace_back();
    for (const auto& replica : replicas)
      of_bucket.push_back(at::zeros({buckets[b].elements}, replica.slots[first[b]].parameter.options().requires_grad(false)));
  }
  BucketNeighbours neighbours;
  if (!buckets.empty())
    neighbours.carrier = std::make_shared<DeviceBuckets>(
        group, DeviceBuckets::Setup{str("the gradients of ", model->name()), made.mine, group.new_device_channel()});
  const int divisor = options.reduce == ReduceOp::kMean ? group.layout().total_replicas() : 1;
  made.exchange = std::make_unique<BucketExchange>(made.mine, group.layout().local_replicas(), divisor, std::move(neighbours));
  return made;
}

// Note [after a call that did not fit]
// A call that did not fit fails on all workers, but one may have been in the middle of a step, and another before or after
// its own; so what happens next must not depend on where a worker was. At the beginning of the next run() all workers
// compare whether anybody has a step that was begun, and then drop it together. The buckets of several machines, or of
// several workers' GPUs, are on their way meanwhile and cannot be dropped: there the job ends.
void GradientReducer::State::recover() {
  WorkerGroup* const others = workers();
  if (others == nullptr || others->failure() || others->shared_failures() == failures_seen) return;
  failures_seen = others->shared_failures();
  const auto has_begun = [](const Replica& replica) {
    return std::ranges::any_of(replica.slots, [](const Slot& slot) { return slot.has_gradient; });
  };
  const bool is_begun = std::exchange(has_failed_run, false) || std::ranges::any_of(replicas, has_begun);
  const auto mine = str(is_begun, " ", exchange ? exchange->last_step() : 0);
  bool is_dropped = false;
  std::uint64_t last_step = 0;
  for (const auto& theirs : others->exchange(str("going on with ", model->name(), " after a failed call").c_str(), mine)) {
    is_dropped = is_dropped || theirs[0] == '1';
    last_step = std::max<std::uint64_t>(last_step, std::stoull(theirs.substr(2)));
  }
  if (!is_dropped) return;
  if (others->layout().machine_count() > 1 || is_on_gpus()) {
    others->abort(
        Error(ErrorCode::kAborted,
              str("a step of ", model->name(),
                  " failed on all workers; with several machines, or GPUs of several workers, the job cannot go on")));
    throw *others->failure();
  }
  reset(last_step);
  others->barrier(str("the gradients of ", model->name(), " are dropped").c_str());  // nobody begins before
}

}  // namespace lockstep

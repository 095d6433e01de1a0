#include "lockstep/data/distributed_dataset.h"

#include <ATen/ATen.h>

#include <algorithm>
#include <exception>

#include "lockstep/base/str.h"
#include "lockstep/data/device_feed.h"
#include "lockstep/data/sources.h"
#include "lockstep/data/steps.h"
#include "lockstep/data/worker_pass.h"
#include "lockstep/replica/mode.h"
#include "lockstep/replica/replica_context.h"
#include "lockstep/replica/replica_set.h"

namespace lockstep {
namespace {

using data::internal::SplitRule;

// Only compared, never followed: a dataset may outlive its strategy.
void require_outside_replicas(const ReplicaSet* replicas) {
  const auto mode = internal::current_mode();
  if (mode.replicas == nullptr || mode.replicas == &internal::default_replicas()) return;
  if (mode.context != nullptr)
    throw Error(ErrorCode::kInvalidArgument,
                "the next element of a distributed dataset was asked for inside run(); take it outside and pass it on: "
                "strategy.run(fn, iterator.get_next())");
  if (mode.replicas != replicas) internal::throw_mixed_strategies("a distributed dataset");
}

data::internal::ReplicaShare share_of(const ReplicaSet& replicas) {
  return {replicas.global_size(), replicas.first_replica(), replicas.size()};
}

// By the policies FILE and AUTO a worker reads its own files, where there are any.
data::Dataset share_of_files(const data::Dataset& dataset, const WorkerLayout& layout) {
  const auto policy = dataset.options().auto_shard_policy;
  if (policy != AutoShardPolicy::kFile && policy != AutoShardPolicy::kAuto) return dataset;
  if (auto node = data::internal::shard_files(dataset.node(), layout.size(), layout.rank))
    return data::Dataset(std::move(node)).with_options({AutoShardPolicy::kFile});
  if (policy == AutoShardPolicy::kFile)
    throw Error(ErrorCode::kNotFound,
                "experimental_distribute_dataset: the auto shard policy is FILE and the dataset reads no "
                "files; use AUTO, DATA or OFF");
  return dataset;
}

std::vector<c10::Device> target_devices(const ReplicaSet& replicas, const InputOptions& options) {
  std::vector<c10::Device> devices(static_cast<std::size_t>(replicas.size()), c10::Device(c10::DeviceType::CPU));
  if (!options.experimental_fetch_to_device.value_or(true)) return devices;
  for (int replica = 0; replica < replicas.size(); ++replica)
    devices[static_cast<std::size_t>(replica)] = replicas.torch_device(replica);
  return devices;
}

}  // namespace

struct DistributedDataset::State {
  const ReplicaSet* replicas = nullptr;
  std::shared_ptr<WorkerGroup> workers = nullptr;  // null: one process
  data::internal::ReplicaShare share = {};
  std::vector<c10::Device> devices = {};  // where each replica's part goes; CPU: left where it is
  int steps_ahead = 0;
  SplitRule rule = SplitRule::kWhole;
  std::vector<data::Dataset> datasets = {};  // one, or one for each replica

  // Elements are dealt out whole, as opposed to batches that are cut.
  bool is_dealt() const { return rule == SplitRule::kWhole || rule == SplitRule::kRebatch; }

  bool keeps_partial_steps() const {
    return workers != nullptr ||
           !std::ranges::all_of(datasets, [](const data::Dataset& dataset) { return dataset.static_shape().is_fixed; });
  }

  data::internal::StepStream open() const {
    auto steps =
        is_dealt() ? data::internal::open_dealt(datasets, share.count) : data::internal::open_split(datasets[0], share, rule);
    return data::internal::feed_devices(std::move(steps), devices, steps_ahead);
  }
};

struct DistributedIterator::State {
  const ReplicaSet* replicas = nullptr;
  bool keeps_partial_steps = true;
  data::internal::StepStream steps = nullptr;                  // null after the end
  std::unique_ptr<data::internal::WorkerPass> pass = nullptr;  // null: one process
  bool pass_is_over = false;
  std::exception_ptr failure = nullptr;

  std::optional<Batch> next(bool keeps_partial) {
    require_outside_replicas(replicas);
    if (failure) std::rethrow_exception(failure);
    data::internal::Step step;
    const bool has_step = read(step);
    const bool goes_on = pass != nullptr ? goes_on_together(has_step, step) : has_step && (step.missing == 0 || keeps_partial);
    if (!goes_on) {
      steps = nullptr;
      pass_is_over = true;
      return std::nullopt;
    }
    if (has_step) data::internal::hand_over(step);
    return Batch(std::move(step.parts));
  }

  bool goes_on_together(bool has_step, data::internal::Step& step) {
    try {
      return !pass_is_over && pass->go_on(has_step, step);
    } catch (...) {
      failure = std::current_exception();
      steps = nullptr;
      throw;
    }
  }

  // A pipeline that failed may have lost rows: the pass does not go on.
  bool read(data::internal::Step& step) {
    try {
      return steps && steps->next(step);
    } catch (...) {
      failure = std::current_exception();
      steps = nullptr;
      throw;
    }
  }
};

DistributedIterator::DistributedIterator(std::unique_ptr<State> state) : state_(std::move(state)) {}
DistributedIterator::~DistributedIterator() = default;
DistributedIterator::DistributedIterator(DistributedIterator&&) noexcept = default;
DistributedIterator& DistributedIterator::operator=(DistributedIterator&&) noexcept = default;

std::optional<DistributedIterator::Batch> DistributedIterator::next() { return state_->next(state_->keeps_partial_steps); }

DistributedIterator::Batch DistributedIterator::get_next() {
  auto batch = next();
  if (!batch)
    throw Error(ErrorCode::kOutOfRange,
                "end of the distributed dataset; make_iterator() begins a new pass, get_next_as_optional() tells the end");
  return *std::move(batch);
}

Optional<DistributedIterator::Batch> DistributedIterator::get_next_as_optional() {
  return Optional<Batch>(state_->next(/*keeps_partial=*/true));
}

DistributedDataset DistributedDataset::from_dataset(ReplicaSet& replicas, const data::Dataset& whole,
                                                    const InputOptions& options) {
  validate_for_distribute_dataset(options);
  const auto share = share_of(replicas);
  const auto& workers = replicas.options().workers;
  const auto dataset = workers == nullptr ? whole : share_of_files(whole, workers->layout());
  const auto rule = data::internal::choose_split(dataset, share.total);
  // Workers that cut every batch for all must see the same batches.
  if (workers != nullptr && rule == SplitRule::kBalanced) data::internal::agree_on_pipeline(*workers, dataset);
  auto split = rule == SplitRule::kRebatch ? data::internal::rebatched(dataset, share) : dataset;
  return DistributedDataset(std::make_shared<const State>(State{&replicas,
                                                                workers,
                                                                share,
                                                                target_devices(replicas, options),
                                                                options.experimental_per_replica_buffer_size,
                                                                rule,
                                                                {std::move(split)}}));
}

DistributedDataset DistributedDataset::from_function(ReplicaSet& replicas,
                                                     const std::function<data::Dataset(const InputContext&)>& make_dataset,
                                                     const InputOptions& options) {
  validate_for_distribute_from_function(options);
  if (!make_dataset)
    throw Error(ErrorCode::kInvalidArgument,
                "distribute_datasets_from_function: the function is empty; give one that makes a dataset");
  const bool is_per_replica = options.experimental_replication_mode == InputReplicationMode::kPerReplica;
  const auto& workers = replicas.options().workers;
  if (is_per_replica && workers != nullptr)
    throw Error(ErrorCode::kUnimplemented,
                "distribute_datasets_from_function: one pipeline for each replica is for the strategies of one process; use "
                "InputReplicationMode::kPerWorker");
  const int pipelines = is_per_replica ? replicas.size() : 1;
  State state{&replicas, workers, share_of(replicas), target_devices(replicas, options),
              options.experimental_per_replica_buffer_size};
  for (int pipeline = 0; pipeline < pipelines; ++pipeline)
    state.datasets.push_back(workers == nullptr
                                 ? make_dataset({pipelines, pipeline, replicas.size()})
                                 : make_dataset({workers->layout().size(), workers->layout().rank, replicas.global_size()}));
  return DistributedDataset(std::make_shared<const State>(std::move(state)));
}

std::int64_t DistributedDataset::cardinality() const {
  const auto& s = *state_;
  if (s.rule == SplitRule::kCeiling && !s.share.is_all()) return data::kUnknown;
  if (!s.is_dealt()) return s.datasets[0].cardinality();
  const bool keeps_partial = s.keeps_partial_steps();
  if (s.datasets.size() == 1) {
    const auto elements = s.datasets[0].cardinality();
    if (elements < 0) return elements;
    return elements / s.share.count + (keeps_partial && elements % s.share.count != 0 ? 1 : 0);
  }
  std::vector<std::int64_t> each;
  for (const auto& dataset : s.datasets) each.push_back(dataset.cardinality());
  if (std::ranges::count(each, data::kUnknown) > 0) return data::kUnknown;
  const auto longer = [](std::int64_t a, std::int64_t b) {  // infinite is the longest
    return static_cast<std::uint64_t>(a) < static_cast<std::uint64_t>(b);
  };
  return keeps_partial ? *std::ranges::max_element(each, longer) : *std::ranges::min_element(each, longer);
}

DistributedIterator DistributedDataset::make_iterator() const {
  auto state = std::make_unique<DistributedIterator::State>();
  state->replicas = state_->replicas;
  state->keeps_partial_steps = state_->keeps_partial_steps();
  state->steps = state_->open();
  // Workers that cut the same batches have the same number of steps: nothing to agree on, if they know it.
  const bool is_same_data = state_->rule == SplitRule::kBalanced && cardinality() != data::kUnknown;
  if (state_->workers != nullptr && !is_same_data)
    state->pass = std::make_unique<data::internal::WorkerPass>(state_->workers, cardinality(), state_->devices);
  return DistributedIterator(std::move(state));
}

}  // namespace lockstep

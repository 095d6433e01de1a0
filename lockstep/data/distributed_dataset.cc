#include "lockstep/data/distributed_dataset.h"

#include <ATen/ATen.h>

#include <algorithm>
#include <exception>

#include "lockstep/base/str.h"
#include "lockstep/data/device_feed.h"
#include "lockstep/data/steps.h"
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
  int size = 0;
  std::vector<c10::Device> devices = {};  // where each replica's part goes; CPU: left where it is
  int steps_ahead = 0;
  SplitRule rule = SplitRule::kWhole;
  std::vector<data::Dataset> datasets = {};  // one, or one for each replica

  // Elements are dealt out whole, as opposed to batches that are cut.
  bool is_dealt() const { return rule == SplitRule::kWhole || rule == SplitRule::kRebatch; }

  bool keeps_partial_steps() const {
    return !std::ranges::all_of(datasets, [](const data::Dataset& dataset) { return dataset.static_shape().is_fixed; });
  }

  data::internal::StepStream open() const {
    auto steps = is_dealt() ? data::internal::open_dealt(datasets, size) : data::internal::open_split(datasets[0], size, rule);
    return data::internal::feed_devices(std::move(steps), devices, steps_ahead);
  }
};

struct DistributedIterator::State {
  const ReplicaSet* replicas = nullptr;
  bool keeps_partial_steps = true;
  data::internal::StepStream steps = nullptr;  // null after the end
  std::exception_ptr failure = nullptr;

  std::optional<Batch> next(bool keeps_partial) {
    require_outside_replicas(replicas);
    if (failure) std::rethrow_exception(failure);
    data::internal::Step step;
    if (!read(step) || (step.missing > 0 && !keeps_partial)) {
      steps = nullptr;
      return std::nullopt;
    }
    data::internal::hand_over(step);
    return Batch(std::move(step.parts));
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

DistributedDataset DistributedDataset::from_dataset(ReplicaSet& replicas, const data::Dataset& dataset,
                                                    const InputOptions& options) {
  validate_for_distribute_dataset(options);
  const auto rule = data::internal::choose_split(dataset, replicas.size());
  auto split = rule == SplitRule::kRebatch ? data::internal::rebatched(dataset, replicas.size()) : dataset;
  return DistributedDataset(std::make_shared<const State>(State{&replicas,
                                                                replicas.size(),
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
  const int pipelines = is_per_replica ? replicas.size() : 1;
  State state{&replicas, replicas.size(), target_devices(replicas, options), options.experimental_per_replica_buffer_size};
  for (int pipeline = 0; pipeline < pipelines; ++pipeline)
    state.datasets.push_back(make_dataset({pipelines, pipeline, replicas.size()}));
  return DistributedDataset(std::make_shared<const State>(std::move(state)));
}

std::int64_t DistributedDataset::cardinality() const {
  const auto& s = *state_;
  if (!s.is_dealt()) return s.datasets[0].cardinality();
  const bool keeps_partial = s.keeps_partial_steps();
  if (s.datasets.size() == 1) {
    const auto elements = s.datasets[0].cardinality();
    if (elements < 0) return elements;
    return elements / s.size + (keeps_partial && elements % s.size != 0 ? 1 : 0);
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
  return DistributedIterator(std::move(state));
}

}  // namespace lockstep

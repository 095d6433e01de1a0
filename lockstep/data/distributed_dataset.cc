#include "lockstep/data/distributed_dataset.h"

#include <ATen/ATen.h>

#include <algorithm>
#include <exception>

#include "lockstep/base/str.h"
#include "lockstep/base/trace.h"
#include "lockstep/data/autoshard.h"
#include "lockstep/data/device_feed.h"
#include "lockstep/data/explain.h"
#include "lockstep/data/pool.h"
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

// What this worker reads: its own files, where all data comes from files and the policy is FILE or AUTO; its part by the
// policy HINT; else everything.
data::Dataset share_of_data(const data::Dataset& dataset, const WorkerLayout& layout) {
  const auto policy = dataset.options().auto_shard_policy;
  if (policy == AutoShardPolicy::kHint)
    return data::Dataset(data::internal::shard_hints(dataset.node(), layout.size(), layout.rank));
  if (policy != AutoShardPolicy::kFile && policy != AutoShardPolicy::kAuto) return dataset;
  if (auto node = data::internal::shard_files(dataset.node(), layout.size(), layout.rank))
    return data::Dataset(std::move(node)).with_options({AutoShardPolicy::kFile});
  if (policy == AutoShardPolicy::kFile) data::internal::throw_no_files(dataset);
  return dataset;
}

std::vector<c10::Device> target_devices(const ReplicaSet& replicas, const InputOptions& options) {
  std::vector<c10::Device> devices(static_cast<std::size_t>(replicas.size()), c10::Device(c10::DeviceType::CPU));
  if (!options.experimental_fetch_to_device.value_or(true)) return devices;
  for (int replica = 0; replica < replicas.size(); ++replica)
    devices[static_cast<std::size_t>(replica)] = replicas.torch_device(replica);
  return devices;
}

int replicas_on_cpu(const ReplicaSet& replicas) {
  int count = 0;
  for (int replica = 0; replica < replicas.size(); ++replica) count += replicas.torch_device(replica).is_cpu() ? 1 : 0;
  return count;
}

// What one process reads: everything.
data::Dataset only_worker(const data::Dataset& dataset) {
  if (dataset.options().auto_shard_policy != AutoShardPolicy::kHint) return dataset;
  return data::Dataset(data::internal::shard_hints(dataset.node(), 1, 0));
}

}  // namespace

using data::internal::PositionReader;
using data::internal::PositionWriter;
using data::internal::RowSum;
using data::internal::Sharing;

struct DistributedDataset::State {
  const ReplicaSet* replicas = nullptr;
  std::shared_ptr<WorkerGroup> workers = nullptr;  // null: one process
  data::internal::ReplicaShare share = {};
  std::vector<c10::Device> devices = {};  // where each replica's part goes; CPU: left where it is
  int steps_ahead = 0;
  SplitRule rule = SplitRule::kWhole;
  std::vector<data::Dataset> datasets = {};                          // one, or one for each replica
  std::vector<std::shared_ptr<data::internal::TapPlace>> taps = {};  // of what they give, for a ShardReport; none: none is made
  Sharing sharing = Sharing::kSame;
  std::optional<data::internal::Distribution> distribution = std::nullopt;  // none: made by a function

  // Elements are dealt out whole, as opposed to batches that are cut.
  bool is_dealt() const { return rule == SplitRule::kWhole || rule == SplitRule::kRebatch; }

  // Every worker reads everything and takes its part, or there is only one: a position is the same on all, and says nothing of
  // them.
  bool is_for_all_workers() const {
    return rule == SplitRule::kBalanced || (rule == SplitRule::kWhole && distribution && sharing == Sharing::kSame);
  }

  // With what counts it for a ShardReport.
  data::Dataset tapped(const data::Dataset& dataset) {
    taps.push_back(std::make_shared<data::internal::TapPlace>());
    return data::Dataset(data::internal::make_tap(dataset.node(), taps.back()));
  }

  bool keeps_partial_steps() const {
    return workers != nullptr ||
           !std::ranges::all_of(datasets, [](const data::Dataset& dataset) { return dataset.static_shape().is_fixed; });
  }

  data::internal::StepStream open() const {
    data::internal::Pool::instance().leave_cores_for(replicas_on_cpu(*replicas));
    auto steps = is_dealt() && !is_for_all_workers() ? data::internal::open_dealt(datasets, share.count)
                                                     : data::internal::open_split(datasets[0], share, rule);
    return data::internal::feed_devices(std::move(steps), devices, steps_ahead);
  }
};

struct DistributedIterator::State {
  std::shared_ptr<const DistributedDataset::State> dataset = nullptr;
  data::internal::StepStream steps = nullptr;                   // null after the end
  std::unique_ptr<data::internal::WorkerPass> pass = nullptr;   // null: one process, or nothing to agree on
  std::vector<std::shared_ptr<data::internal::Tap>> taps = {};  // of this pass, as the dataset's
  std::vector<RowSum> seen = {};                                // by replica, for a ShardReport
  bool has_begun = false;
  bool is_whole = true;  // not restored from a position that does not say what was seen before
  bool is_over = false;
  std::exception_ptr failure = nullptr;

  std::optional<Batch> next(bool keeps_partial) {
    require_outside_replicas(dataset->replicas);
    if (failure) std::rethrow_exception(failure);
    has_begun = true;
    const trace::Span span("next batch", trace::Category::kInput);
    data::internal::Step step;
    const bool has_step = watched([&] { return steps && steps->next(step); });
    const bool goes_on = pass != nullptr ? watched([&] { return !is_over && pass->go_on(has_step, step); })
                                         : has_step && (step.missing == 0 || keeps_partial);
    if (!goes_on) {
      steps = nullptr;
      is_over = true;
      return std::nullopt;
    }
    if (has_step) data::internal::hand_over(step);
    if (!dataset->taps.empty())
      for (std::size_t r = 0; r < seen.size(); ++r) seen[r].add(step.parts[r]);
    return Batch(std::move(step.parts));
  }

  // A pipeline that failed may have lost rows: the pass does not go on.
  template <typename F>
  bool watched(F act) {
    try {
      return act();
    } catch (...) {
      failure = std::current_exception();
      steps = nullptr;
      throw;
    }
  }

  bool is_of_all_workers() const { return dataset->is_for_all_workers(); }

  void save(PositionWriter& to) {
    to.begin("distributed");
    const auto& share = dataset->share;
    to.put(is_of_all_workers());
    if (!is_of_all_workers())
      for (const int number : {share.total, share.first, share.count}) to.put(std::int64_t{number});
    to.put(is_over);
    for (const auto& one : dataset->datasets) data::internal::put_pipeline(to, *one.node());
    to.put(steps != nullptr);
    if (steps) steps->save(to, {});
    const bool has_pass = pass != nullptr && !is_of_all_workers();
    if (has_pass) pass->save(to);
    if (!dataset->taps.empty() && !is_of_all_workers())
      for (const auto& sum : seen) {
        to.put(sum.count);
        to.put(sum.hash);
      }
  }

  void restore(PositionReader& from) {
    from.expect("distributed");
    const auto& share = dataset->share;
    if (from.flag() != is_of_all_workers())
      throw Error(ErrorCode::kInvalidArgument,
                  "the saved position is of a dataset that was divided by another auto shard policy");
    if (!is_of_all_workers()) require_share({share.total, share.first, share.count}, from);
    is_over = from.flag();
    for (const auto& one : dataset->datasets) data::internal::take_pipeline(from, *one.node());
    if (from.flag()) steps->restore(from);
    else steps = nullptr;
    if (pass != nullptr && !is_of_all_workers()) pass->restore(from);
    if (!dataset->taps.empty() && !is_of_all_workers())
      for (auto& sum : seen) sum = {from.number(), from.unsigned_number()};
    is_whole = !is_of_all_workers();
    from.require_end();
  }

  static void require_share(const data::internal::ReplicaShare& mine, PositionReader& from) {
    const auto total = from.number();
    const auto first = from.number();
    const auto count = from.number();
    if (total != mine.total || first != mine.first || count != mine.count)
      throw Error(ErrorCode::kInvalidArgument,
                  str("the saved position is of the worker with replicas ", first, " to ", first + count - 1, " of ", total,
                      ", and this one has ", mine.first, " to ", mine.first + mine.count - 1, " of ", mine.total,
                      "; only data divided by the policy DATA can go on with other workers"));
  }
};

DistributedIterator::DistributedIterator(std::unique_ptr<State> state) : state_(std::move(state)) {}
DistributedIterator::~DistributedIterator() = default;
DistributedIterator::DistributedIterator(DistributedIterator&&) noexcept = default;
DistributedIterator& DistributedIterator::operator=(DistributedIterator&&) noexcept = default;

std::optional<DistributedIterator::Batch> DistributedIterator::next() {
  return state_->next(state_->dataset->keeps_partial_steps());
}

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

std::string DistributedIterator::save() {
  if (state_->failure)
    throw Error(ErrorCode::kFailedPrecondition, "the position of an iterator that has failed cannot be saved; save before");
  PositionWriter writer;
  state_->save(writer);
  return std::move(writer).take();
}

void DistributedIterator::restore(std::string_view position) {
  if (state_->has_begun || state_->failure)
    throw Error(ErrorCode::kFailedPrecondition, "a position is restored into a new iterator, before its first step");
  PositionReader reader(position);
  state_->has_begun = true;
  state_->watched([&] {
    state_->restore(reader);
    return true;
  });
}

ShardReport DistributedIterator::shard_report() {
  const auto& dataset = *state_->dataset;
  if (dataset.taps.empty())
    throw Error(ErrorCode::kFailedPrecondition,
                "shard_report(): nothing was counted; distribute the dataset with InputOptions::shard_report true");
  if (!state_->is_whole)
    throw Error(
        ErrorCode::kFailedPrecondition,
        "shard_report(): this pass was restored from a position that says nothing of what replicas saw before, since there "
        "may have been others; the next pass can be reported");
  data::internal::WorkerSums mine{.replicas = state_->seen, .is_over = state_->is_over};
  if (mine.is_over)  // before that, other threads may be counting
    for (const auto& tap : state_->taps) mine.read.add(tap->sum);
  std::vector<data::internal::WorkerSums> all;
  if (dataset.workers == nullptr) all.push_back(mine);
  else
    for (const auto& text : dataset.workers->exchange("a shard report", mine.to_text()))
      all.push_back(data::internal::WorkerSums::from_text(text));
  return data::internal::judge(all, dataset.sharing);
}

DistributedDataset DistributedDataset::from_dataset(ReplicaSet& replicas, const data::Dataset& whole,
                                                    const InputOptions& options) {
  validate_for_distribute_dataset(options);
  State state{&replicas, replicas.options().workers, share_of(replicas), target_devices(replicas, options),
              options.experimental_per_replica_buffer_size};
  auto dataset = state.workers == nullptr ? only_worker(whole) : share_of_data(whole, state.workers->layout());
  const auto policy = dataset.options().auto_shard_policy;
  state.rule = data::internal::choose_split(dataset, state.share.total);
  // Workers that cut every batch for all must see the same batches.
  if (state.workers != nullptr && state.rule == SplitRule::kBalanced)
    data::internal::agree_on_pipeline(*state.workers, dataset);
  state.distribution = data::internal::Distribution{
      whole, state.workers == nullptr ? std::vector{state.share.total} : state.workers->layout().replicas,
      state.workers != nullptr && policy == AutoShardPolicy::kFile, state.rule};
  if (policy == AutoShardPolicy::kFile || policy == AutoShardPolicy::kHint) state.sharing = Sharing::kOwn;
  if (policy == AutoShardPolicy::kOff) state.sharing = Sharing::kAll;
  if (options.shard_report) dataset = state.tapped(dataset);
  state.datasets = {state.rule == SplitRule::kRebatch ? data::internal::rebatched(dataset, state.share) : dataset};
  return DistributedDataset(std::make_shared<const State>(std::move(state)));
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
  state.sharing = Sharing::kOwn;
  for (int pipeline = 0; pipeline < pipelines; ++pipeline) {
    auto dataset = workers == nullptr
                       ? make_dataset({pipelines, pipeline, replicas.size()})
                       : make_dataset({workers->layout().size(), workers->layout().rank, replicas.global_size()});
    state.datasets.push_back(options.shard_report ? state.tapped(dataset) : std::move(dataset));
  }
  return DistributedDataset(std::make_shared<const State>(std::move(state)));
}

std::string DistributedDataset::explain() const {
  if (state_->distribution) return data::internal::explain(*state_->distribution);
  return str("every worker's function gives its own data; in every step each replica gets the next element",
             state_->datasets.size() > 1 ? " of its own dataset" : "", "\n");
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
  state->dataset = state_;
  state->seen.resize(static_cast<std::size_t>(state_->share.count));
  state->steps = state_->open();
  for (const auto& place : state_->taps) state->taps.push_back(place->last);
  // Workers that cut the same batches have the same number of steps: nothing to agree on, if they know it.
  const bool is_same_data = state_->rule == SplitRule::kBalanced && cardinality() != data::kUnknown;
  if (state_->workers != nullptr && !is_same_data)
    state->pass = std::make_unique<data::internal::WorkerPass>(state_->workers, cardinality(), state_->devices);
  return DistributedIterator(std::move(state));
}

}  // namespace lockstep

#include "lockstep/data/steps.h"

#include <algorithm>
#include <utility>

#include "lockstep/base/error.h"
#include "lockstep/base/str.h"
#include "lockstep/data/rebatch_plan.h"
#include "lockstep/data/rows.h"

namespace lockstep::data::internal {
namespace {

class SplitSteps final : public Stream<Step> {
 public:
  SplitSteps(std::unique_ptr<Stream<Element>> batches, const ReplicaShare& share, SplitRule rule)
      : batches_(std::move(batches)), share_(share), rule_(rule) {}

  bool next(Step& out) override {
    Element batch;
    std::int64_t rows = 0;
    while (rows == 0) {
      if (!batches_->next(batch)) return false;
      rows = count_rows(batch);
    }
    const auto sizes = rule_ == SplitRule::kBalanced ? balanced_parts(rows, share_.total) : ceiling_parts(rows, share_.total);
    auto parts = split_rows(batch, sizes);
    if (!share_.is_all()) parts = {parts.begin() + share_.first, parts.begin() + share_.first + share_.count};
    out = Step{std::move(parts)};
    return true;
  }

 private:
  const std::unique_ptr<Stream<Element>> batches_;
  const ReplicaShare share_;
  const SplitRule rule_;
};

// The parts of every batch, one after the other.
class PartStream final : public Stream<Element> {
 public:
  PartStream(std::unique_ptr<Stream<Element>> batches, int total)
      : steps_(std::move(batches), {total, 0, total}, SplitRule::kCeiling) {}

  bool next(Element& out) override {
    while (next_ == step_.parts.size()) {
      if (!steps_.next(step_)) return false;
      next_ = 0;
    }
    out = std::move(step_.parts[next_++]);
    return true;
  }

 private:
  SplitSteps steps_;
  Step step_;
  std::size_t next_ = 0;
};

class DealtSteps final : public Stream<Step> {
 public:
  DealtSteps(std::vector<std::unique_ptr<Stream<Element>>> streams, int replicas)
      : streams_(std::move(streams)), replicas_(static_cast<std::size_t>(replicas)) {}

  bool next(Step& out) override {
    if (is_done_) return false;
    out = Step{std::vector<Element>(replicas_)};
    std::vector<std::size_t> starved;
    for (std::size_t replica = 0; replica < replicas_; ++replica) {
      auto& stream = streams_[streams_.size() == 1 ? 0 : replica];
      if (!stream->next(out.parts[replica])) starved.push_back(replica);
      else if (replicas_ > 1) shape_.learn(out.parts[replica]);
    }
    is_done_ = starved.size() == replicas_;
    if (is_done_) return false;
    for (const auto replica : starved) out.parts[replica] = shape_.empty();
    out.missing = static_cast<int>(starved.size());
    return true;
  }

 private:
  const std::vector<std::unique_ptr<Stream<Element>>> streams_;
  const std::size_t replicas_;
  RowShape shape_;
  bool is_done_ = false;
};

}  // namespace

SplitRule choose_split(const Dataset& dataset, int replicas) {
  if (replicas == 1) return SplitRule::kWhole;
  const auto shape = dataset.static_shape();
  if (shape.has_scalar)
    throw Error(
        ErrorCode::kInvalidArgument,
        lockstep::str("experimental_distribute_dataset: the dataset's elements are scalars, which cannot be split over ",
                      replicas, " replicas; call batch() on the dataset first"));
  const auto policy = dataset.options().auto_shard_policy;
  if (policy == AutoShardPolicy::kAuto || policy == AutoShardPolicy::kData) return SplitRule::kBalanced;
  return shape.batch_size().value_or(0) > 0 ? SplitRule::kRebatch : SplitRule::kCeiling;
}

Dataset rebatched(const Dataset& dataset, const ReplicaShare& share) {
  auto sizes = balanced_parts(dataset.static_shape().batch_size().value(), share.total);
  std::rotate(sizes.begin(), sizes.begin() + share.first, sizes.end());
  return dataset.rebatch(sizes);
}

StepStream open_split(const Dataset& dataset, const ReplicaShare& share, SplitRule rule) {
  if (rule == SplitRule::kBalanced || share.is_all()) return std::make_unique<SplitSteps>(dataset.node()->open(), share, rule);
  std::vector<std::unique_ptr<Stream<Element>>> parts;
  parts.push_back(std::make_unique<PartStream>(dataset.node()->open(), share.total));
  return std::make_unique<DealtSteps>(std::move(parts), share.count);
}

StepStream open_dealt(const std::vector<Dataset>& datasets, int replicas) {
  std::vector<std::unique_ptr<Stream<Element>>> streams;
  for (const auto& dataset : datasets) streams.push_back(dataset.node()->open());
  return std::make_unique<DealtSteps>(std::move(streams), replicas);
}

}  // namespace lockstep::data::internal

#include "lockstep/data/steps.h"

#include <algorithm>
#include <utility>

#include "lockstep/base/error.h"
#include "lockstep/base/str.h"
#include "lockstep/data/ops/elements.h"
#include "lockstep/data/rebatch_plan.h"
#include "lockstep/data/rows.h"

namespace lockstep::data::internal {
namespace {

// Batches that were read before a position was saved, then the others.
class Batches {
 public:
  explicit Batches(std::unique_ptr<Stream<Element>> stream) : stream_(std::move(stream)) {}

  bool next(Element& out) {
    if (restored_.empty()) return stream_->next(out);
    out = std::move(restored_.front());
    restored_.pop_front();
    return true;
  }

  void save(PositionWriter& to, const std::deque<StepData>& ahead) {
    std::deque<Element> batches;
    for (const auto& step : ahead) batches.push_back(step.whole.empty() ? step.parts.at(0) : step.whole);
    batches.insert(batches.end(), restored_.begin(), restored_.end());
    put_elements(to, batches);
    stream_->save(to);
  }
  void restore(PositionReader& from) {
    const auto batches = take_elements(from);
    restored_.assign(batches.begin(), batches.end());
    stream_->restore(from);
  }

 private:
  const std::unique_ptr<Stream<Element>> stream_;
  std::deque<Element> restored_;
};

class SplitSteps final : public StepSource {
 public:
  SplitSteps(std::unique_ptr<Stream<Element>> batches, const ReplicaShare& share, SplitRule rule)
      : batches_(std::move(batches)), share_(share), rule_(rule) {}

  bool next(Step& out) override {
    Element batch;
    if (rule_ == SplitRule::kWhole) {
      if (!batches_.next(batch)) return false;
      out = Step{{.parts = {std::move(batch)}}};
      return true;
    }
    std::int64_t rows = 0;
    while (rows == 0) {
      if (!batches_.next(batch)) return false;
      rows = count_rows(batch);
    }
    const auto sizes = rule_ == SplitRule::kBalanced ? balanced_parts(rows, share_.total) : ceiling_parts(rows, share_.total);
    auto parts = split_rows(batch, sizes);
    if (!share_.is_all()) parts = {parts.begin() + share_.first, parts.begin() + share_.first + share_.count};
    out = Step{{.parts = std::move(parts), .whole = std::move(batch)}};
    return true;
  }

  void save(PositionWriter& to, const std::deque<StepData>& ahead) override {
    to.begin("split");
    batches_.save(to, ahead);
  }
  void restore(PositionReader& from) override {
    from.expect("split");
    batches_.restore(from);
  }

 private:
  Batches batches_;
  const ReplicaShare share_;
  const SplitRule rule_;
};

// The parts of every batch, one after the other.
class PartStream final : public Stream<Element> {
 public:
  PartStream(std::unique_ptr<Stream<Element>> batches, int total)
      : steps_(std::move(batches), {total, 0, total}, SplitRule::kCeiling) {}

  bool next(Element& out) override {
    while (parts_.empty()) {
      Step step;
      if (!steps_.next(step)) return false;
      parts_.assign(step.parts.begin(), step.parts.end());
    }
    out = std::move(parts_.front());
    parts_.pop_front();
    return true;
  }

  void save(PositionWriter& to) override {
    to.begin("parts");
    put_elements(to, parts_);
    steps_.save(to, {});
  }
  void restore(PositionReader& from) override {
    from.expect("parts");
    const auto parts = take_elements(from);
    parts_.assign(parts.begin(), parts.end());
    steps_.restore(from);
  }

 private:
  SplitSteps steps_;
  std::deque<Element> parts_;
};

class DealtSteps final : public StepSource {
 public:
  DealtSteps(std::vector<std::unique_ptr<Stream<Element>>> streams, int replicas)
      : streams_(std::move(streams)), replicas_(static_cast<std::size_t>(replicas)) {}

  bool next(Step& out) override {
    if (!restored_.empty()) {
      out = Step{std::move(restored_.front())};
      restored_.pop_front();
      return true;
    }
    if (is_done_) return false;
    out = Step{{.parts = std::vector<Element>(replicas_)}};
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

  void save(PositionWriter& to, const std::deque<StepData>& ahead) override {
    to.begin("dealt");
    auto steps = ahead;
    steps.insert(steps.end(), restored_.begin(), restored_.end());
    to.put(static_cast<std::int64_t>(steps.size()));
    for (const auto& step : steps) {
      put_elements(to, step.parts);
      to.put(std::int64_t{step.missing});
    }
    to.put(is_done_);
    to.put(shape_.is_known());
    if (shape_.is_known()) to.put(shape_.empty());
    for (const auto& stream : streams_) stream->save(to);
  }
  void restore(PositionReader& from) override {
    from.expect("dealt");
    for (auto left = from.count(); left > 0; --left) {
      StepData step{.parts = take_elements(from)};
      step.missing = static_cast<int>(from.number());
      if (step.parts.size() != replicas_)
        throw Error(ErrorCode::kInvalidArgument, "the saved position is of another number of replicas");
      restored_.push_back(std::move(step));
    }
    is_done_ = from.flag();
    if (from.flag()) shape_.learn(from.element());
    for (const auto& stream : streams_) stream->restore(from);
  }

 private:
  const std::vector<std::unique_ptr<Stream<Element>>> streams_;
  const std::size_t replicas_;
  RowShape shape_;
  bool is_done_ = false;
  std::deque<StepData> restored_;
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
  if (rule != SplitRule::kCeiling || share.is_all()) return std::make_unique<SplitSteps>(dataset.node()->open(), share, rule);
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

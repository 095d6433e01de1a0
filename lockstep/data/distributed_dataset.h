#pragma once

#include <cstdint>
#include <functional>
#include <iterator>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "lockstep/base/error.h"
#include "lockstep/data/dataset.h"
#include "lockstep/data/options.h"
#include "lockstep/data/shard_report.h"
#include "lockstep/fwd.h"
#include "lockstep/replica/distributed_values.h"

namespace lockstep {

// A value that may be absent.
template <typename T>
class Optional {
 public:
  Optional() = default;
  explicit Optional(std::optional<T> value) : value_(std::move(value)) {}

  bool has_value() const noexcept { return value_.has_value(); }
  // Throws kInvalidArgument when there is none.
  const T& get_value() const {
    require(has_value(), "get_value() of an Optional without a value; ask has_value() first");
    return *value_;
  }

 private:
  std::optional<T> value_;
};

// One pass over a distributed dataset: one part of the data for each local replica and step. One thread at a time.
//
// All functions throw kInvalidArgument inside run() (take the part as an argument of run()), kFailedPrecondition under
// another strategy's scope, and whatever the dataset's functions throw, from then on in every call.
//
// A step for which only some replicas have data is handed out with parts of no rows for the others. The exception are
// datasets of which every element has the same shape (drop_remainder) and is dealt out whole, as
// distribute_datasets_from_function does: there next() and get_next() end before such a step, so that every part they
// give has that shape; get_next_as_optional() still gives it.
class DistributedIterator {
 public:
  using Batch = PerReplica<data::Element>;

  // Nothing at the end of the data.
  std::optional<Batch> next();
  // Throws kOutOfRange at the end of the data.
  Batch get_next();
  Optional<Batch> get_next_as_optional();

  // Where this worker's pass is, shuffle buffers and steps made ahead included. restore() takes it on a new iterator of the
  // same dataset. With the policies DATA, and AUTO without files, the position is the same on all workers, and can be restored
  // with any number of workers and replicas; else every worker saves its own, and has to get it again. Errors as Iterator's.
  std::string save();
  void restore(std::string_view position);

  // After the end of the pass, on all workers: who saw what, and whether that was every example once. Needs
  // InputOptions::shard_report, else kFailedPrecondition.
  ShardReport shard_report();

  ~DistributedIterator();
  DistributedIterator(DistributedIterator&&) noexcept;
  DistributedIterator& operator=(DistributedIterator&&) noexcept;

 private:
  friend class DistributedDataset;
  struct State;
  explicit DistributedIterator(std::unique_ptr<State> state);

  std::unique_ptr<State> state_;
};

// A dataset whose elements go to the replicas of one strategy. A value; can be iterated and nothing else.
//
//   for (auto batch : distributed) strategy.run(step, batch);
class DistributedDataset {
 public:
  // Divides every global batch between the replicas. With the policies AUTO and DATA (AUTO is FILE for several workers that
  // read files) each batch is cut into contiguous parts that differ by at most one row, larger ones first, empty ones where
  // there are fewer rows than replicas. With OFF, FILE and HINT rows are joined across batches where the batch size is known,
  // so that only the last step is smaller. One replica gets the elements as they are. Throws kInvalidArgument for scalar
  // elements (here, or when they appear), and see validate_for_distribute_dataset.
  static DistributedDataset from_dataset(ReplicaSet& replicas, const data::Dataset& dataset, const InputOptions& options = {});

  // `make_dataset` is called at once: once, or once for each replica in kPerReplica mode. Its elements are per-replica
  // batches and are dealt out whole, one for each replica and step.
  static DistributedDataset from_function(ReplicaSet& replicas,
                                          const std::function<data::Dataset(const InputContext&)>& make_dataset,
                                          const InputOptions& options = {});

  // What each worker will read and how it is divided between the replicas, in words.
  std::string explain() const;

  // Steps in a pass; data::kInfinite, or data::kUnknown.
  std::int64_t cardinality() const;

  // A new pass. A shuffled dataset has another order in each.
  DistributedIterator make_iterator() const;

  class RangeIterator;
  RangeIterator begin() const;
  std::default_sentinel_t end() const noexcept { return {}; }

 private:
  friend class DistributedIterator;
  struct State;
  explicit DistributedDataset(std::shared_ptr<const State> state) : state_(std::move(state)) {}

  std::shared_ptr<const State> state_;
};

// For `for (auto batch : distributed)`, with the rules of next(). Single pass: copies share the position.
class DistributedDataset::RangeIterator {
 public:
  using iterator_concept = std::input_iterator_tag;
  using value_type = DistributedIterator::Batch;
  using difference_type = std::ptrdiff_t;

  explicit RangeIterator(DistributedIterator iterator) : iterator_(std::make_shared<DistributedIterator>(std::move(iterator))) {
    ++*this;
  }

  const value_type& operator*() const { return *batch_; }
  RangeIterator& operator++() {
    batch_ = iterator_->next();
    return *this;
  }
  void operator++(int) { ++*this; }
  friend bool operator==(const RangeIterator& it, std::default_sentinel_t) noexcept { return !it.batch_; }

 private:
  std::shared_ptr<DistributedIterator> iterator_;
  std::optional<value_type> batch_;
};

inline DistributedDataset::RangeIterator DistributedDataset::begin() const { return RangeIterator(make_iterator()); }

}  // namespace lockstep

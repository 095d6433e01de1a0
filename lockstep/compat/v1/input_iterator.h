#pragma once

#include <memory>
#include <optional>

#include "lockstep/data/distributed_dataset.h"
#include "lockstep/fwd.h"

namespace lockstep::compat::v1 {

// What make_dataset_iterator() and make_input_fn_iterator() give: the data of one strategy, a pass at a time. Every pass is
// begun by initialize(); a shuffled dataset has another order in each. One thread at a time. May outlive its strategy, to end
// the pass that was begun.
//
//   auto iterator = strategy.make_dataset_iterator(dataset);
//   iterator.initialize();
//   auto losses = strategy.experimental_run(step, iterator);
class InputIterator {
 public:
  // Begins a pass at the first step, whether the last one is over, has failed or goes on. Throws kFailedPrecondition in a
  // replica, under another strategy, and when the strategy is gone.
  void initialize();

  // The replicas' parts of the next step. Throws kFailedPrecondition where no pass was begun, kOutOfRange at the end of the
  // data, and else what DistributedIterator throws; all of them until initialize() is called.
  DistributedIterator::Batch get_next();

  // Ends the pass and gives back what it holds. Without it: the next initialize(), or the destructor.
  void finalize() noexcept { pass_.reset(); }

  // `maker` is the method's name, for messages.
  InputIterator(const char* maker, Strategy& strategy, DistributedDataset dataset);

  // Whether `strategy` is the one whose data this is.
  bool belongs_to(const Strategy& strategy) const noexcept;

 private:
  const char* maker_;
  std::shared_ptr<ReplicaSet> replicas_;
  DistributedDataset dataset_;
  std::optional<DistributedIterator> pass_;  // nothing: not initialized
};

}  // namespace lockstep::compat::v1

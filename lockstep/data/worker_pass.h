#pragma once

#include <c10/core/Device.h>

#include <cstdint>
#include <memory>
#include <vector>

#include "lockstep/collective/worker_group.h"
#include "lockstep/data/dataset.h"
#include "lockstep/data/rows.h"
#include "lockstep/data/steps.h"

namespace lockstep::data::internal {

// One pass of all workers over their data, which ends on all of them after the same step, however uneven the data is.
//
// Note [the end of the data]
// 1. At the beginning the workers tell each other how many steps they have. If all know, the pass has as many as the
//    longest, and nothing more is said; a worker whose data has ended goes on with parts of no rows.
// 2. If one does not know, they ask each other before every step whether anybody has data.
// 3. A worker that has never seen an element learns from another one what its empty parts look like.
class WorkerPass {
 public:
  // All workers make one at the same time. `steps`: this worker's, kInfinite or kUnknown; `devices`: of its replicas.
  WorkerPass(std::shared_ptr<WorkerGroup> workers, std::int64_t steps, std::vector<c10::Device> devices);

  // Called by all workers before every step, with what this one has read; has_step false: its data has ended. Returns
  // whether the pass goes on; then `step` has a part for every replica.
  bool go_on(bool has_step, Step& step);

  // Where this worker is in the pass.
  void save(PositionWriter& to) const;
  void restore(PositionReader& from);

 private:
  bool is_over(bool has_step);
  void learn(const Step& step);
  void learn_from_others();
  void fill(Step& step) const;

  // Const after construction.
  const std::shared_ptr<WorkerGroup> workers_;
  const std::vector<c10::Device> devices_;
  std::int64_t steps_ = 0;  // of the longest; kInfinite, kUnknown
  bool is_one_empty_ = false;

  // Used by one thread at a time.
  std::int64_t count_ = 0;
  bool must_tell_ = false;  // in this step: somebody does not know what an element looks like
  std::vector<RowShape> shapes_;
};

// The datasets of all workers must be one pipeline: throws kInvalidArgument on all when they are not. Shuffles that were
// given no seed get worker 0's, so that every worker sees the same order.
void agree_on_pipeline(WorkerGroup& workers, const Dataset& dataset);

}  // namespace lockstep::data::internal

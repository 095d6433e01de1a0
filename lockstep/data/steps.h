#pragma once

#include <c10/core/Device.h>

#include <deque>
#include <memory>
#include <vector>

#include "lockstep/data/dataset.h"
#include "lockstep/data/node.h"
#include "lockstep/device/stream_fence.h"

// What a distributed dataset hands out, before it is wrapped for the user.

namespace lockstep::data::internal {

struct StepData {
  std::vector<Element> parts = {};  // one for each local replica
  int missing = 0;                  // parts made up of no rows because the data ended within the step
  // The batch before it was cut, whose memory the parts share; none where elements are dealt out whole.
  Element whole = {};
};

struct Step : StepData {
  std::vector<StreamFence> arrived = {};
};

// One pass. Used by one thread at a time.
//
// Note [positions of steps]
// 1. Where every batch is cut for all replicas, a position is that of the batches, the same on all workers: any number of
//    workers and replicas can go on from it. Else it is this worker's own.
// 2. Steps that were made ahead belong to the position, as what comes first: of a cut batch the whole, which was kept.
class StepSource {
 public:
  virtual ~StepSource() = default;
  // False at the end, and then for ever. Throws what went wrong; the source must not be used after that.
  virtual bool next(Step& out) = 0;
  // As those of a Stream. `ahead`: steps of this source that come before its next one.
  virtual void save(PositionWriter& to, const std::deque<StepData>& ahead) = 0;
  virtual void restore(PositionReader& from) = 0;
};

using StepStream = std::unique_ptr<StepSource>;

// How a dataset of global batches becomes steps.
enum class SplitRule {
  kWhole,     // one replica: as it is
  kBalanced,  // each batch cut evenly, larger parts first
  kCeiling,   // each batch cut by TensorFlow's older rule
  kRebatch,   // rows joined across batches
};

// Which part of a job's replicas this worker has.
struct ReplicaShare {
  int total = 1;
  int first = 0;
  int count = 1;

  bool is_all() const { return count == total; }
};

// By the dataset's policy and by what is known of its batch size. Throws kInvalidArgument when it cannot be split.
SplitRule choose_split(const Dataset& dataset, int replicas);

// The dataset's rows in the sizes that kRebatch deals out.
Dataset rebatched(const Dataset& dataset, const ReplicaShare& share);

// kBalanced and kCeiling: every batch of at least one row is one step; the parts share its memory. Each worker cuts every
// batch for all replicas and takes its own parts; with kCeiling, where it reads batches of its own, it deals all of
// them to its replicas, one step after the other. kWhole: every element is one step of one replica.
StepStream open_split(const Dataset& dataset, const ReplicaShare& share, SplitRule rule);

// In every step each replica gets the next element, of the one dataset in turn or of its own dataset. Replicas without
// data get no rows while others have some.
StepStream open_dealt(const std::vector<Dataset>& datasets, int replicas);

}  // namespace lockstep::data::internal

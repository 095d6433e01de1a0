#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <utility>

#include "lockstep/checkpoint/manifest.h"
#include "lockstep/checkpoint/trackable.h"
#include "lockstep/data/distributed_dataset.h"
#include "lockstep/fwd.h"
#include "lockstep/ps/sharded_variable.h"
#include "lockstep/variable/mirrored.h"
#include "lockstep/variable/variable.h"

namespace lockstep {

struct RestoreOptions {
  // Everything that is tracked must be in the checkpoint. Without it, what the checkpoint does not know stays as it is. (What
  // the checkpoint has and nobody tracks is never an error.)
  bool strict = true;
};

// A checkpoint that was restored.
struct RestoredCheckpoint {
  std::string path;
  std::int64_t number = 0;
  CheckpointInfo info = {};
};

// The things of which a training's state consists, by name, and how they get into a folder and back:
//
//   std::int64_t step = 0;
//   Checkpoint checkpoint(strategy);
//   checkpoint.track("model", model).track("step", &step).track("data", iterator).track_generators();
//
// A folder has weights.safetensors (the model, which other programs can open), state.safetensors (all else) and manifest.json
// (what it is, and the checksums). It comes back on other numbers of replicas and workers; docs/checkpoints.md says what of it.
//
// Outside run() only. With several workers all make the same calls: each takes part in save(), the first one writes, and all
// read: the folder must be one that all see. A handle: copies name the same things. One thread at a time.
class Checkpoint {
 public:
  // Of the strategy in whose scope() it is made; outside, of the one that the first variable or model tracked belongs to.
  Checkpoint();
  explicit Checkpoint(const Strategy& strategy);
  explicit Checkpoint(std::shared_ptr<ReplicaSet> replicas);

  // Names are unique, and not empty or with a '/'; else kInvalidArgument. What is given by reference or pointer must outlive
  // the checkpoint's use.
  Checkpoint& track(const std::string& name, std::shared_ptr<Trackable> part);
  // Its one value, whatever the number of replicas (Variable::saved_value).
  Checkpoint& track(const std::string& name, const Variable& variable);
  // The same of the whole: it comes back in any number of shards, and as a Variable.
  Checkpoint& track(const std::string& name, const ShardedVariable& variable);
  // Parameters and buffers; comes back on any number of replicas. The first one's file is weights.safetensors, another's
  // weights-NAME.safetensors.
  Checkpoint& track(const std::string& name, std::shared_ptr<ModuleReplicas> model);
  template <typename M>
  Checkpoint& track(const std::string& name, const MirroredModule<M>& model) {
    return track(name, model.replicas());
  }
  // Where a pass is. It is restored into a new iterator, before its first step; what positions of several workers can be
  // restored into says DistributedIterator::save.
  Checkpoint& track(const std::string& name, DistributedIterator& iterator);
  Checkpoint& track(const std::string& name, data::Iterator& iterator);
  Checkpoint& track(const std::string& name, std::int64_t* number);
  Checkpoint& track(const std::string& name, double* number);
  // The random generators of all replicas of the job, and each process's own (torch::rand outside run()). They belong to the
  // replica's number: on more replicas, the further ones keep theirs.
  Checkpoint& track_generators(const std::string& name = "generators");

  // Makes the folder, which must not be there, whole or not at all: see Note [checkpoint commit]. Returns when it is on the
  // disk. Errors as FileLayer's, and what a part throws; then on all workers.
  void write(const std::string& folder, const CheckpointInfo& info = {});

  // Throws kNotFound when it is not there, kDataLoss when it is damaged, and kInvalidArgument with all names that are missing,
  // unexpected or of another shape; then nothing was changed.
  RestoredCheckpoint read(const std::string& folder, const RestoreOptions& options = {});

  // Of the strategy; null where it has none: one process.
  std::shared_ptr<ReplicaSet> replicas() const;

  struct State;

 private:
  friend class CheckpointManager;
  std::shared_ptr<State> state_;
};

}  // namespace lockstep

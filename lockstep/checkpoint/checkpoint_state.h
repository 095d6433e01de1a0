#pragma once

#include <deque>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "lockstep/checkpoint/checkpoint.h"
#include "lockstep/checkpoint/checkpoint_files.h"
#include "lockstep/checkpoint/together.h"
#include "lockstep/fwd.h"

namespace lockstep {

namespace internal {

// A checkpoint's bytes, and what keeps them where they are.
struct SavePlan {
  CheckpointImage image;
  // Pieces of `image` that are live tensors: they must be copied before training goes on.
  std::vector<std::span<const std::byte>*> live;
  std::vector<at::Tensor> tensors;
  std::vector<std::shared_ptr<std::string>> texts;
};

// Parts by name, in the order of track().
using Parts = std::vector<std::pair<std::string, CheckpointPart>>;

}  // namespace internal

struct Checkpoint::State {
  struct Tracked {
    std::string name;
    std::shared_ptr<Trackable> part;
  };

  WorkerGroup* workers() const;
  bool is_first() const { return internal::is_first(workers()); }
  void add(const std::string& name, std::shared_ptr<Trackable> part, std::shared_ptr<ReplicaSet> owner = nullptr);

  // What all parts save, on all workers together.
  internal::Parts collect(const char* what) const;
  // On the first worker.
  internal::SavePlan plan(internal::Parts parts, const CheckpointInfo& info) const;
  // Bytes of the tensors that plan() would leave where they are.
  static std::size_t live_bytes(const internal::Parts& parts);
  // Whether others write files of it; see FilePart.
  bool has_file_parts() const;
  // Has files that parameter servers wrote read, here or by servers. Throws kDataLoss.
  void check_server_files(const OpenedCheckpoint& opened) const;
  // Checks on all workers that everything fits, then restores it.
  RestoredCheckpoint restore(const OpenedCheckpoint& opened, const RestoreOptions& options) const;

  std::vector<Tracked> tracked;
  std::shared_ptr<ReplicaSet> replicas;  // null: one process
};

namespace internal {

std::shared_ptr<Trackable> variable_part(const Variable& variable);
std::shared_ptr<Trackable> variable_part(const ShardedVariable& variable);
// `state` owns the part, and may learn its strategy later.
std::shared_ptr<Trackable> iterator_part(const Checkpoint::State& state, DistributedIterator& iterator);
std::shared_ptr<Trackable> iterator_part(const Checkpoint::State& state, data::Iterator& iterator);
// What keeps iterator_part from restoring.
std::vector<std::string> position_problems(const Checkpoint::State& state, const CheckpointPart& part);
// Of all replicas of the checkpoint's strategy, and of this process.
std::shared_ptr<Trackable> generators_part(const Checkpoint::State& state);
std::shared_ptr<Trackable> number_part(std::int64_t* number);
std::shared_ptr<Trackable> number_part(double* number);

}  // namespace internal
}  // namespace lockstep

#pragma once

#include <cstdint>
#include <map>
#include <mutex>
#include <optional>
#include <thread>
#include <tuple>
#include <vector>

#include "lockstep/ps/replica_host.h"
#include "lockstep/serve/snapshots.h"

namespace lockstep::internal {

// A server's snapshots of replicated groups: Note [snapshots of a parameter server], 6. Thread-safe.
class GroupSnapshots {
 public:
  // Below options.folder. Looks what there is; errors as FileLayer's.
  explicit GroupSnapshots(const SnapshotOptions& options);

  std::vector<ps::SavedGroup> saved() const;
  // Fills a new store from the newest one that is whole; damaged ones are named in a warning. Throws kDataLoss when there is
  // none, kUnavailable when there is no memory for the variables.
  void restore(std::uint32_t group, ps::VariableStore& store);

  // Writes one now of each group whose primary `host` is, unless nothing has changed since the last. Errors as FileLayer's.
  void take(ps::ReplicaHost& host);
  // A thread that does so every `options.every`, and soon after variables were made. Both must outlive it.
  std::jthread take_always(ps::ReplicaHost& host);

 private:
  struct Kept {
    CheckpointDirectory directory;
    std::optional<std::tuple<std::uint64_t, std::uint64_t, std::uint64_t>> taken;  // epoch, operations, variables
    std::optional<ps::SavedGroup> newest;
  };
  Kept& kept_of(std::uint32_t group);  // with mu_ held

  // Const after construction.
  const SnapshotOptions options_;
  FileLayer& files_;

  mutable std::mutex mu_;
  // Guarded by mu_.
  std::map<std::uint32_t, Kept> groups_;
};

}  // namespace lockstep::internal

#pragma once

#include <chrono>
#include <condition_variable>
#include <cstdint>
#include <mutex>
#include <optional>
#include <string>
#include <thread>

#include "lockstep/checkpoint/checkpoint_directory.h"
#include "lockstep/ps/recovery.h"
#include "lockstep/ps/store.h"
#include "lockstep/serve/update_counter.h"

// Note [snapshots of a parameter server]
// 1. Every so often, and soon after variables were made, the server writes its variables, the states of their optimizers, their
//    versions and the table of clients, all of one moment, as FOLDER/ps-0/ckpt-7: a checkpoint like any other, there whole or
//    not at all (Note [checkpoint commit]). Requests that change something wait while the system copies it into its memory, not
//    for the disk, unless it has no memory left for that; reads do not wait. The two newest are kept.
// 2. Beside them is updates.count: a mapped file with the number of operations done so far (UpdateCounter). Each is counted
//    before who asked is told that it was done.
// 3. A server that is started again has the newest one that is whole before it serves; damaged ones are named in a warning.
//    What was lost is the count of 2 less that of the snapshot. The log and the coordinator are told.
// 4. Versions go on above all that a reader can have seen: the lost operations are added to them.
// 5. A client that has no answer repeats its request, which is done once: the table of clients is of the same moment as the
//    values (Note [exactly once]). What was answered after that moment is lost.
// 6. Of replicated groups the primary takes them: FOLDER/ps-0/group-1/ckpt-7, with the epoch of its view. While one of a
//    group's servers lives, they are not used. When both are lost, or all servers are started again, the group begins with the
//    newest one that any server has: Note [replication], 9. How many updates are lost is said in the coordinator's log, as far
//    as it has heard of them.

namespace lockstep::internal {

struct SnapshotOptions {
  std::string folder = "";                                   // of this server alone
  std::string server = "";                                   // "/job:ps/task:0", for texts
  std::string suffix = "";                                   // of its files: "-ps-0"
  std::chrono::nanoseconds every = std::chrono::minutes(1);  // 0: when take() is called
  FileLayer* files = nullptr;                                // null: the system's own; for tests
};

// Keeps a store's snapshots: Note [snapshots of a parameter server].
class Snapshots {
 public:
  // The store must be new, and count in `counter`; both outlive it. Restores, then starts a thread that takes them. Throws
  // kFailedPrecondition when another process has the folder; errors as FileLayer's, and kUnavailable when there is no memory
  // for the variables.
  Snapshots(ps::VariableStore& store, UpdateCounter& counter, const SnapshotOptions& options);
  ~Snapshots() = default;

  const ServerRecovery& recovery() const noexcept { return recovery_; }

  // Writes one now, unless nothing has changed since the last. Errors as FileLayer's: the last one stays. Thread-safe.
  void take();

 private:
  void restore();
  bool is_due();
  void run(const std::stop_token& stop);

  // Const after construction.
  const SnapshotOptions options_;
  FileLayer& files_;
  ps::VariableStore& store_;
  UpdateCounter& counter_;
  ServerRecovery recovery_;

  std::mutex mu_;
  std::condition_variable_any wake_;
  // Guarded by mu_.
  CheckpointDirectory directory_;
  std::optional<std::pair<std::uint64_t, std::uint64_t>> taken_;  // operations and variables of the last one

  // Used only on the thread.
  std::uint64_t seen_ = 0;  // variables, a moment ago
  std::chrono::steady_clock::time_point next_ = {};

  std::jthread thread_;  // last: joined first
};

}  // namespace lockstep::internal

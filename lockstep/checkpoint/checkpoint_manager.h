#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "lockstep/checkpoint/checkpoint.h"
#include "lockstep/checkpoint/checkpoint_directory.h"

namespace lockstep {

struct CheckpointManagerOptions {
  std::int64_t max_to_keep = 5;    // the newest; 0: all
  std::string keep_best = "";      // beside them, the one whose CheckpointInfo::metrics has the best value of this name
  Better better = Better::kLower;  // for keep_best: a loss; kHigher: an accuracy
  // save() returns when the tensors are copied, and a thread writes. Takes that much more memory.
  bool async = true;
  FileLayer* files = nullptr;  // null: the system's own; for tests
};

// Keeps a directory of checkpoints "ckpt-1", "ckpt-2", ...: writes the next, removes the old, finds the newest that is whole.
//
//   CheckpointManager manager(checkpoint, "backup", {.max_to_keep = 3});
//   if (auto restored = manager.restore_latest()) first_epoch = restored->info.epoch + 1;
//   ...
//   manager.save({.step = step, .epoch = epoch});
//
// One job writes to a directory at a time, from its first save() to the end of its manager; reading is free. With several
// workers all call save(), wait() and restore_latest(), and get the same answers and errors. One thread at a time.
class CheckpointManager {
 public:
  // Nothing is touched yet. Throws kInvalidArgument for options that mean nothing.
  CheckpointManager(Checkpoint checkpoint, std::string directory, CheckpointManagerOptions options = {});
  // Waits for a save that is under way; if it failed, a warning says so.
  ~CheckpointManager();
  CheckpointManager(const CheckpointManager&) = delete;
  CheckpointManager& operator=(const CheckpointManager&) = delete;

  // Returns the new checkpoint's path: it is on the disk now, or, with `async`, after the next wait(). Waits for the save
  // before. Throws what that one failed with (then nothing is saved now), kFailedPrecondition when another job writes to the
  // directory, naming it, or it may not be written to, kUnavailable when the disk is full, and what parts throw. Whatever
  // happens, the last good one stays.
  std::string save(const CheckpointInfo& info);
  std::string save(std::int64_t step) { return save(CheckpointInfo{.step = step}); }

  // Makes the directory and keeps other jobs out of it now, as the first save() does otherwise: whoever is going to save learns
  // at once that it cannot. Errors as save()'s.
  void claim();

  // With `async`: makes the memory for the copies in the background, so that the first save() stops its caller no longer than
  // the later ones. To be called when all that is tracked has its size: optimizers have theirs after a step.
  void prepare();

  // Returns when nothing is being written, and throws what the last save failed with.
  void wait();

  // Restores the newest checkpoint that is whole, after wait(); a warning names those that are not. Nothing: there is none.
  // Throws kDataLoss with all reasons when none of them is whole, and as Checkpoint::read.
  std::optional<RestoredCheckpoint> restore_latest(const RestoreOptions& options = {});
  // The same for the best one, by `keep_best`; kDataLoss when it is damaged.
  std::optional<RestoredCheckpoint> restore_best(const RestoreOptions& options = {});

  // Paths of those that are on the disk, as this worker sees it; oldest first. They may be damaged.
  std::vector<std::string> checkpoints() const;
  std::optional<std::string> latest_checkpoint() const;
  std::optional<std::string> best_checkpoint();

  // Removes all checkpoints; and the directory, if nothing else is in it.
  void remove_all();

  const std::string& directory() const noexcept;
  // What it saves; a handle, to which more can be added.
  Checkpoint checkpoint() const;

 private:
  struct State;
  std::unique_ptr<State> state_;
};

}  // namespace lockstep

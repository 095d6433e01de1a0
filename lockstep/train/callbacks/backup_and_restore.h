#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <string>

#include "lockstep/base/exit_codes.h"
#include "lockstep/train/callbacks/callback.h"

namespace lockstep {

class CheckpointManager;

struct BackupAndRestoreOptions {
  // Every so many steps; absent (0): at the end of every epoch. With steps_per_update, at the next update.
  std::int64_t save_freq = 0;
  bool delete_checkpoint = true;  // when training has come to its end
  // Whether the files are written while training goes on.
  bool async = true;
  // When a worker gets SIGTERM, all save after the same step and call `exit_fn`; empty: the process ends with
  // kPreemptedExitCode. If it returns, fit() throws kCancelled.
  bool save_before_preemption = true;
  std::function<void()> exit_fn = nullptr;
};

// Makes a training go on where it was: keeps a checkpoint of all of it in a folder, and when fit() begins and finds one there,
// brings it back: weights, optimizer, random generators, the place in the data, metrics, what callbacks remember. The final
// weights are those of a training that was never interrupted, bit for bit.
//
// One for a fit(). With several workers all need to see the folder; the chief writes. Of a hosted model (parameter servers) the
// coordinator keeps it and the servers write, which then need to see the folder; what is exact there says Note [resuming a fit
// on workers].
class BackupAndRestore : public Callback {
 public:
  explicit BackupAndRestore(std::string folder, const BackupAndRestoreOptions& options = {});

  Turn turn() const override { return Turn::kKeeps; }
  bool can_be_late() const override { return true; }
  std::int64_t steps_until_pause() const override;
  // Throws kInvalidArgument when the checkpoint is another model's, kDataLoss when there are some and none is whole.
  void on_train_begin(Training& training) override;
  void on_train_batch_end(Training& training) override;
  void on_epoch_end(Training& training, Logs& logs) override;
  void on_train_end(Training& training) override;
  void on_train_failed(Training& training) override;

 private:
  void save(Training& training, const Logs& logs);
  void leave(Training& training);

  // Const after construction.
  std::string folder_;
  BackupAndRestoreOptions options_;

  // Used only on the thread that called fit().
  std::shared_ptr<CheckpointManager> manager_;
  std::shared_ptr<void> notice_;  // listens for SIGTERM
  std::int64_t unsaved_ = 0;      // steps
  bool is_prepared_ = false;
};

}  // namespace lockstep

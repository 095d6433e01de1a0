#include "lockstep/train/callbacks/backup_and_restore.h"

#include "lockstep/base/log.h"
#include "lockstep/base/str.h"
#include "lockstep/checkpoint/checkpoint_manager.h"
#include "lockstep/replica/replica_set.h"
#include "lockstep/strategy/strategy.h"
#include "lockstep/train/callbacks/finite_weights.h"
#include "lockstep/train/callbacks/training_checkpoint.h"
#include "lockstep/train/model/model_state.h"
#include "lockstep/train/preemption.h"

namespace lockstep {
namespace {

constexpr const char* kName = "BackupAndRestore";

}  // namespace

BackupAndRestore::BackupAndRestore(std::string folder, const BackupAndRestoreOptions& options)
    : folder_(std::move(folder)), options_(options) {
  require(!folder_.empty(), "BackupAndRestore: the folder has no name");
  if (options.save_freq < 0)
    throw Error(ErrorCode::kInvalidArgument, str("BackupAndRestore: save_freq is ", options.save_freq,
                                                 "; it counts steps, from 1 on, and 0 is the end of every epoch"));
}

void BackupAndRestore::on_train_begin(Training& training) {
  // Two: while the newest is being written, there is one that is whole.
  manager_ = std::make_shared<CheckpointManager>(training_checkpoint(training), folder_,
                                                 CheckpointManagerOptions{.max_to_keep = 2, .async = options_.async});
  unsaved_ = 0;
  is_prepared_ = false;
  if (options_.save_before_preemption) notice_ = internal::listen_for_preemption();
  const auto restored = manager_->restore_latest();
  manager_->claim();
  // Servers keep what steps have changed also when the coordinator is lost before its first checkpoint.
  if (!restored && training.model().state().hosted != nullptr) save(training, {});
  if (restored && training.is_chief())
    log_info(str("BackupAndRestore: training goes on at step ", training.step(), " of epoch ", training.epoch() + 1, ", from ",
                 restored->path));
}

// All workers are here, after the same step.
void BackupAndRestore::leave(Training& training) {
  if (!internal::may_be_kept(training, kName)) return;
  manager_->save(training_info(training, {}));
  manager_->wait();  // on all workers, when it is on the disk
  if (training.is_chief())
    log_warning(str("BackupAndRestore: told to go (SIGTERM); training is kept in ", folder_, ", after step ", training.step(),
                    " of epoch ", training.epoch() + 1));
  internal::leave_together(training.model().strategy().replicas().workers(), options_.exit_fn);
  training.fail(Error(ErrorCode::kCancelled, str("fit: told to go (SIGTERM); training is kept in ", folder_)));
}

std::int64_t BackupAndRestore::steps_until_pause() const {
  return options_.save_freq == 0 ? 0 : std::max<std::int64_t>(1, options_.save_freq - unsaved_);
}

void BackupAndRestore::on_train_batch_end(Training& training) {
  if (!std::exchange(is_prepared_, true)) manager_->prepare();  // now the optimizer has its state too
  if (!training.is_between_updates()) {
    ++unsaved_;
    return;
  }
  if (notice_ != nullptr && training.is_preempted()) return leave(training);
  if (++unsaved_ >= options_.save_freq && options_.save_freq > 0) save(training, {});
}

// Epochs with fewer steps than an update has are between updates only here.
void BackupAndRestore::on_epoch_end(Training& training, Logs& logs) {
  if (notice_ != nullptr && training.is_preempted()) return leave(training);
  if (options_.save_freq == 0 || unsaved_ >= options_.save_freq) save(training, logs);
}

void BackupAndRestore::save(Training& training, const Logs& logs) {
  unsaved_ = 0;
  if (internal::may_be_kept(training, kName)) manager_->save(training_info(training, logs));
}

void BackupAndRestore::on_train_end(Training&) {
  manager_->wait();
  if (options_.delete_checkpoint) manager_->remove_all();
  manager_.reset();
  notice_.reset();
}

void BackupAndRestore::on_train_failed(Training&) {
  manager_.reset();
  notice_.reset();
}

}  // namespace lockstep

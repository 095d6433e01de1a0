#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>

#include "lockstep/train/callbacks/callback.h"
#include "lockstep/train/callbacks/monitor.h"

namespace lockstep {

class CheckpointManager;
class FileLock;

struct ModelCheckpointOptions {
  std::string monitor = "val_loss";
  bool save_best_only = false;  // only when the monitored value has improved
  MonitorMode mode = MonitorMode::kAuto;
  std::optional<double> initial_value_threshold = std::nullopt;  // what has to be beaten first
  // Every so many steps; 0: at the end of every epoch.
  std::int64_t save_freq = 0;
  // Of a folder: so many of the newest checkpoints, beside the best one.
  std::int64_t max_to_keep = 5;
};

// Saves the model while it trains. A path that ends with ".safetensors" is a file with the weights, and may name values:
// "weights-{epoch:02d}-{val_loss:.3f}.safetensors" (epochs from 1). Any other path is a folder of whole checkpoints (weights,
// optimizer, position: see CheckpointManager), written while training goes on; one that ends as files of other formats do
// (".pt", ".h5") is refused. Written once, by the chief, whatever the number of workers; one training at a time writes there.
// Of a hosted model (parameter servers) the servers write a checkpoint, into a folder that all of them see, before training
// goes on.
class ModelCheckpoint : public Callback {
 public:
  // Throws kInvalidArgument for a path that is neither such a file nor a folder, or a folder that names values.
  explicit ModelCheckpoint(std::string path, const ModelCheckpointOptions& options = {});

  Turn turn() const override { return is_file() ? Turn::kUsual : Turn::kSaves; }
  bool can_be_late() const override { return true; }
  std::int64_t steps_until_pause() const override;
  // Makes the folder. Throws kFailedPrecondition when nothing can be written there, or another training does.
  void on_train_begin(Training& training) override;
  void on_train_batch_end(Training& training) override;
  void on_epoch_end(Training& training, Logs& logs) override;
  void on_train_end(Training& training) override;
  void on_train_failed(Training&) override;
  CheckpointPart save() const override;
  void restore(const CheckpointPart& part) override;

  // The best value so far.
  double best() const noexcept { return best_; }

 private:
  bool is_file() const { return path_.ends_with(".safetensors"); }
  void write(Training& training, const Logs& logs);

  // Const after construction.
  std::string path_;
  ModelCheckpointOptions options_;

  // Used only on the thread that called fit().
  Monitor monitor_;
  double best_;
  bool is_restored_ = false;
  std::int64_t unsaved_ = 0;                    // steps
  std::shared_ptr<CheckpointManager> manager_;  // null: a file
  std::shared_ptr<FileLock> lock_;              // of a file, on the chief
};

}  // namespace lockstep

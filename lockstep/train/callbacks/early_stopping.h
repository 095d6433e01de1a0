#pragma once

#include <limits>
#include <optional>
#include <string>

#include "lockstep/train/callbacks/callback.h"
#include "lockstep/train/callbacks/monitor.h"

namespace lockstep {

struct EarlyStoppingOptions {
  std::string monitor = "val_loss";
  double min_delta = 0;  // less than this is no improvement
  int patience = 0;      // epochs without improvement that are borne
  MonitorMode mode = MonitorMode::kAuto;
  std::optional<double> baseline = std::nullopt;  // improvements count only beyond it
  bool restore_best_weights = false;
  int start_from_epoch = 0;
};

// Ends training when a value no longer improves.
class EarlyStopping : public Callback {
 public:
  explicit EarlyStopping(const EarlyStoppingOptions& options = {});

  void on_train_begin(Training& training) override;
  void on_epoch_end(Training& training, Logs& logs) override;
  void on_train_end(Training& training) override;
  CheckpointPart save() const override;
  void restore(const CheckpointPart& part) override;

  // The epoch that ended training, and the best one; from 0, -1: none.
  int stopped_epoch() const noexcept { return stopped_epoch_; }
  int best_epoch() const noexcept { return best_epoch_; }

 private:
  void keep(Training& training, double value);

  // Const after construction.
  EarlyStoppingOptions options_;

  // Used only on the thread that called fit().
  Monitor monitor_;
  double best_;
  int wait_ = 0;
  int best_epoch_ = -1;
  int stopped_epoch_ = -1;
  bool is_restored_ = false;
  CheckpointPart best_weights_;
};

}  // namespace lockstep

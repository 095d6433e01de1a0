#pragma once

#include <string>

#include "lockstep/train/callbacks/callback.h"
#include "lockstep/train/callbacks/monitor.h"

namespace lockstep {

struct ReduceLROnPlateauOptions {
  std::string monitor = "val_loss";
  double factor = 0.1;  // below 1
  int patience = 10;
  MonitorMode mode = MonitorMode::kAuto;
  double min_delta = 1e-4;
  int cooldown = 0;  // epochs after a reduction in which nothing counts
  double min_lr = 0;
};

// Multiplies the learning rate by `factor` when a value no longer improves. The logs get "learning_rate".
class ReduceLROnPlateau : public Callback {
 public:
  explicit ReduceLROnPlateau(const ReduceLROnPlateauOptions& options = {});

  void on_train_begin(Training& training) override;
  void on_epoch_end(Training& training, Logs& logs) override;
  CheckpointPart save() const override;
  void restore(const CheckpointPart& part) override;

 private:
  // Const after construction.
  ReduceLROnPlateauOptions options_;

  // Used only on the thread that called fit().
  Monitor monitor_;
  double best_;
  int wait_ = 0;
  int cooldown_ = 0;
  bool is_restored_ = false;
};

}  // namespace lockstep

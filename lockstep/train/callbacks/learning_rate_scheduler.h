#pragma once

#include <functional>
#include <utility>

#include "lockstep/train/callbacks/callback.h"
#include "lockstep/train/callbacks/values.h"

namespace lockstep {

// Sets the learning rate at the beginning of every epoch: rate(epoch from 0, the rate so far). The logs get "learning_rate".
// (A schedule by steps is part of the optimizer: Adam(schedules::CosineDecay(...)).)
class LearningRateScheduler : public Callback {
 public:
  explicit LearningRateScheduler(std::function<double(int epoch, double rate)> rate) : rate_(std::move(rate)) {
    require(rate_ != nullptr, "LearningRateScheduler: the function is empty");
  }

  void on_epoch_begin(Training& training) override {
    // An epoch that goes on in its middle has its rate: the optimizer's was restored.
    const bool has_rate = std::exchange(restored_epoch_, -1) == training.epoch();
    epoch_ = training.epoch();
    if (!has_rate) training.set_learning_rate(rate_(epoch_, training.learning_rate()));
  }
  void on_epoch_end(Training& training, Logs& logs) override { logs.set("learning_rate", training.learning_rate()); }
  CheckpointPart save() const override {
    CheckpointPart part;
    internal::put(part, "epoch", epoch_);
    return part;
  }
  void restore(const CheckpointPart& part) override { restored_epoch_ = static_cast<int>(internal::get(part, "epoch")); }

 private:
  // Const after construction.
  std::function<double(int, double)> rate_;

  // Used only on the thread that called fit().
  int epoch_ = -1;           // whose rate was set last
  int restored_epoch_ = -1;  // the same, until the first epoch after a restart
};

}  // namespace lockstep

#pragma once

#include <functional>
#include <utility>

#include "lockstep/train/callbacks/callback.h"

namespace lockstep {

// Sets the learning rate at the beginning of every epoch: rate(epoch from 0, the rate so far). The logs get "learning_rate".
// (A schedule by steps is part of the optimizer: Adam(schedules::CosineDecay(...)).)
class LearningRateScheduler : public Callback {
 public:
  explicit LearningRateScheduler(std::function<double(int epoch, double rate)> rate) : rate_(std::move(rate)) {
    require(rate_ != nullptr, "LearningRateScheduler: the function is empty");
  }

  void on_epoch_begin(Training& training) override {
    training.set_learning_rate(rate_(training.epoch(), training.learning_rate()));
  }
  void on_epoch_end(Training& training, Logs& logs) override { logs.set("learning_rate", training.learning_rate()); }

 private:
  std::function<double(int, double)> rate_;
};

}  // namespace lockstep

#pragma once

#include <functional>
#include <utility>

#include "lockstep/train/callbacks/callback.h"

namespace lockstep {

struct LambdaCallbackOptions {
  std::function<void(Training&)> on_train_begin = nullptr;
  std::function<void(Training&)> on_train_end = nullptr;
  std::function<void(Training&)> on_epoch_begin = nullptr;
  std::function<void(Training&, Logs&)> on_epoch_end = nullptr;
  std::function<void(Training&)> on_train_batch_begin = nullptr;
  std::function<void(Training&)> on_train_batch_end = nullptr;
};

// A callback made of functions, for short ones: LambdaCallback({.on_epoch_end = [](Training&, Logs& logs) { ... }}).
class LambdaCallback : public Callback {
 public:
  explicit LambdaCallback(LambdaCallbackOptions functions) : functions_(std::move(functions)) {}

  void on_train_begin(Training& training) override { call(functions_.on_train_begin, training); }
  void on_train_end(Training& training) override { call(functions_.on_train_end, training); }
  void on_epoch_begin(Training& training) override { call(functions_.on_epoch_begin, training); }
  void on_epoch_end(Training& training, Logs& logs) override {
    if (functions_.on_epoch_end) functions_.on_epoch_end(training, logs);
  }
  void on_train_batch_begin(Training& training) override { call(functions_.on_train_batch_begin, training); }
  void on_train_batch_end(Training& training) override { call(functions_.on_train_batch_end, training); }
  bool can_be_late() const override { return !functions_.on_train_batch_begin && !functions_.on_train_batch_end; }

 private:
  static void call(const std::function<void(Training&)>& function, Training& training) {
    if (function) function(training);
  }

  LambdaCallbackOptions functions_;
};

}  // namespace lockstep

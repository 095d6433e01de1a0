#include "lockstep/train/callbacks/reduce_lr_on_plateau.h"

#include <algorithm>

#include "lockstep/base/log.h"
#include "lockstep/base/str.h"
#include "lockstep/train/callbacks/values.h"

namespace lockstep {

ReduceLROnPlateau::ReduceLROnPlateau(const ReduceLROnPlateauOptions& options)
    : options_(options), monitor_(options.monitor, options.mode, options.min_delta), best_(monitor_.worst()) {
  if (!(options.factor > 0 && options.factor < 1))
    throw Error(ErrorCode::kInvalidArgument,
                str("ReduceLROnPlateau: factor is ", options.factor, "; it must lie between 0 and 1, or nothing is reduced"));
  if (options.patience < 0 || options.cooldown < 0 || options.min_lr < 0)
    throw Error(ErrorCode::kInvalidArgument,
                str("ReduceLROnPlateau: patience is ", options.patience, ", cooldown is ", options.cooldown, ", min_lr is ",
                    options.min_lr, "; none of them may be negative"));
}

void ReduceLROnPlateau::on_train_begin(Training& training) {
  monitor_.ask(training);
  training.set_learning_rate(training.learning_rate());  // refused under a schedule: now, not at the first plateau
  if (std::exchange(is_restored_, false)) return;
  best_ = monitor_.worst();
  wait_ = cooldown_ = 0;
}

void ReduceLROnPlateau::on_epoch_end(Training& training, Logs& logs) {
  logs.set("learning_rate", training.learning_rate());
  const auto value = monitor_.read(logs, "ReduceLROnPlateau");
  if (!value) return;
  if (cooldown_ > 0) {
    --cooldown_;
    wait_ = 0;
  }
  if (monitor_.is_better(*value, best_)) {
    best_ = *value;
    wait_ = 0;
    return;
  }
  if (cooldown_ > 0 || ++wait_ < options_.patience) return;
  const double old_rate = training.learning_rate();
  if (old_rate <= options_.min_lr) return;
  const double rate = std::max(old_rate * options_.factor, options_.min_lr);
  training.set_learning_rate(rate);
  if (training.is_chief())
    log_info(str("ReduceLROnPlateau: epoch ", training.epoch() + 1, ": the learning rate is now ", rate));
  cooldown_ = options_.cooldown;
  wait_ = 0;
}

CheckpointPart ReduceLROnPlateau::save() const {
  CheckpointPart part;
  internal::put(part, "best", best_);
  internal::put(part, "wait", wait_);
  internal::put(part, "cooldown", cooldown_);
  return part;
}

void ReduceLROnPlateau::restore(const CheckpointPart& part) {
  best_ = internal::get(part, "best");
  wait_ = static_cast<int>(internal::get(part, "wait"));
  cooldown_ = static_cast<int>(internal::get(part, "cooldown"));
  is_restored_ = true;
}

}  // namespace lockstep

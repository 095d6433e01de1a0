#include "lockstep/train/callbacks/early_stopping.h"

#include "lockstep/base/log.h"
#include "lockstep/base/str.h"
#include "lockstep/train/callbacks/values.h"
#include "lockstep/train/model/model.h"

namespace lockstep {

EarlyStopping::EarlyStopping(const EarlyStoppingOptions& options)
    : options_(options), monitor_(options.monitor, options.mode, options.min_delta), best_(monitor_.worst()) {
  if (options.patience < 0 || options.start_from_epoch < 0)
    throw Error(ErrorCode::kInvalidArgument, str("EarlyStopping: patience is ", options.patience, ", start_from_epoch is ",
                                                 options.start_from_epoch, "; both count epochs, from 0 on"));
}

void EarlyStopping::on_train_begin(Training& training) {
  monitor_.ask(training);
  if (std::exchange(is_restored_, false)) return;
  wait_ = 0;
  best_ = monitor_.worst();
  best_epoch_ = stopped_epoch_ = -1;
  best_weights_ = {};
}

void EarlyStopping::keep(Training& training, double value) {
  best_ = value;
  best_epoch_ = training.epoch();
  if (options_.restore_best_weights) best_weights_ = training.model().weights();
}

void EarlyStopping::on_epoch_end(Training& training, Logs& logs) {
  if (training.epoch() < options_.start_from_epoch) return;
  const auto value = monitor_.read(logs, "EarlyStopping");
  if (!value) return;
  ++wait_;
  if (best_epoch_ < 0 && options_.restore_best_weights && !monitor_.is_better(*value, best_)) keep(training, best_);
  if (monitor_.is_better(*value, best_)) {
    keep(training, *value);
    if (!options_.baseline || monitor_.is_better(*value, *options_.baseline)) wait_ = 0;
    return;
  }
  if (wait_ < options_.patience || training.epoch() == 0) return;
  stopped_epoch_ = training.epoch();
  training.stop();
}

void EarlyStopping::on_train_end(Training& training) {
  if (best_weights_.tensors.empty()) return;
  training.model().set_weights(best_weights_);
  if (training.is_chief())
    log_info(str("EarlyStopping: the weights are those of epoch ", best_epoch_ + 1, ", ", options_.monitor, " ", best_));
}

CheckpointPart EarlyStopping::save() const {
  auto part = best_weights_;
  internal::put(part, "best", best_);
  internal::put(part, "wait", wait_);
  internal::put(part, "best_epoch", best_epoch_);
  return part;
}

void EarlyStopping::restore(const CheckpointPart& part) {
  best_ = internal::get(part, "best");
  wait_ = static_cast<int>(internal::get(part, "wait"));
  best_epoch_ = static_cast<int>(internal::get(part, "best_epoch"));
  best_weights_ = {};
  for (const auto& [name, tensor] : part.tensors) best_weights_.tensors.emplace_back(name, tensor.clone());  // of a mapped file
  is_restored_ = true;
}

}  // namespace lockstep

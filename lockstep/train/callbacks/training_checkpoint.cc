#include "lockstep/train/callbacks/training_checkpoint.h"

#include "lockstep/strategy/strategy.h"
#include "lockstep/train/model/model_state.h"
#include "lockstep/train/optimizers/optimizer_part.h"

namespace lockstep {

Checkpoint training_checkpoint(Training& training) {
  auto& model = training.model();
  Checkpoint checkpoint(model.strategy());
  // First where training is, which says no to other data before any weight is changed.
  checkpoint.track("training", training.trackable());
  if (const auto& link = model.state().hosted; link != nullptr)
    return checkpoint.track("model", link->part()).track_generators();  // the optimizer is beside each variable
  checkpoint.track("model", model.module()).track("optimizer", optimizer_part(model.optimizer())).track_generators();
  return checkpoint;
}

CheckpointInfo training_info(Training& training, const Logs& logs) {
  CheckpointInfo info{training.iterations(), training.epoch(), training.learning_rate()};
  for (const auto& [name, value] : logs) info.metrics[name] = value;
  return info;
}

}  // namespace lockstep

#include "lockstep/train/callbacks/training_checkpoint.h"

#include "lockstep/strategy/strategy.h"
#include "lockstep/train/model/model_state.h"
#include "lockstep/train/optimizers/optimizer_part.h"

namespace lockstep {

Checkpoint training_checkpoint(Training& training) {
  auto& model = training.model();
  if (model.state().hosted != nullptr)
    throw Error(ErrorCode::kUnimplemented,
                "a checkpoint of the whole training (ModelCheckpoint with a folder, BackupAndRestore) cannot be written by the "
                "coordinator of a hosted model: weights and optimizer are on the parameter servers. "
                "ModelCheckpoint(\"NAME.safetensors\") writes the weights of an epoch");
  Checkpoint checkpoint(model.strategy());
  // First where training is, which says no to other data before any weight is changed.
  checkpoint.track("training", training.trackable())
      .track("model", model.module())
      .track("optimizer", optimizer_part(model.optimizer()))
      .track_generators();
  return checkpoint;
}

CheckpointInfo training_info(Training& training, const Logs& logs) {
  CheckpointInfo info{training.iterations(), training.epoch(), training.learning_rate()};
  for (const auto& [name, value] : logs) info.metrics[name] = value;
  return info;
}

}  // namespace lockstep

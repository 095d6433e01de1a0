#pragma once

#include "lockstep/checkpoint/checkpoint.h"
#include "lockstep/train/callbacks/training.h"
#include "lockstep/train/optimizer.h"

namespace lockstep {

// Everything that a fit() needs to go on elsewhere: the model, the optimizer, the random generators, where training is.
Checkpoint training_checkpoint(Training& training);

// What a checkpoint's manifest says of it.
CheckpointInfo training_info(Training& training, const Logs& logs);

}  // namespace lockstep

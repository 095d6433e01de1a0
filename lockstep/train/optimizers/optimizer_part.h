#pragma once

#include <memory>

#include "lockstep/checkpoint/trackable.h"
#include "lockstep/train/optimizer.h"

namespace lockstep {

// An optimizer as a part of a checkpoint: checkpoint.track("optimizer", optimizer_part(optimizer)). One of another kind, or of
// other parameters, is refused before anything is restored.
std::shared_ptr<Trackable> optimizer_part(Optimizer optimizer);

}  // namespace lockstep

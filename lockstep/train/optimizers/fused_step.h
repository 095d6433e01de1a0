#pragma once

#include <memory>

#include "lockstep/fwd.h"
#include "lockstep/replica/recording.h"

namespace lockstep {

// An update of all parameters of a LibTorch optimizer in a few operations of a GPU, with that optimizer's own options and
// state, which can be recorded: SGD, Adam and AdamW. Used by one replica.
class FusedStep {
 public:
  virtual ~FusedStep() = default;

  // Null: its kind has none, or its parameters are not all on a GPU.
  static std::unique_ptr<FusedStep> make(torch::optim::Optimizer& optimizer);

  // Whether the step is done now, or only recorded.
  enum class When { kDone, kRecorded };
  // As optimizer.step(). False: a gradient is sparse or of another dtype than its parameter, and nothing was done. Throws
  // kFailedPrecondition when the first step of a parameter would be recorded.
  virtual bool step(When when) = 0;

  // Of the step() that was recorded just now.
  virtual ReplayPart replay_part() = 0;
};

}  // namespace lockstep

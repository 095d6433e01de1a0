#pragma once

#include "lockstep/train/callbacks/callback.h"

namespace lockstep {

// Ends training when the loss is NaN or infinite: all workers leave after the same step, and fit() throws kOutOfRange with the
// step and the parameters that are not finite. Looks after every step, at the parameters where a train_step of one's own tells
// no loss.
class TerminateOnNaN : public Callback {
 public:
  Turn turn() const override { return Turn::kChecks; }
  void on_train_batch_end(Training& training) override;
  bool can_be_late() const override { return true; }
};

}  // namespace lockstep

#pragma once

#include <string>

#include "lockstep/train/callbacks/training.h"

namespace lockstep::internal {

// The model's trainable parameters that have values that are not finite: "conv1.weight (3 of 288 values), ...", the first few.
// "": all are finite.
std::string not_finite_parameters(const Model& model);

// For a callback that saves training: whether what there is now may be kept. False after a failure of this step, and when
// parameters are not finite: then training fails with kOutOfRange naming them, and what `who` has saved before stays. All
// workers ask at the same step.
bool may_be_kept(Training& training, const char* who);

}  // namespace lockstep::internal

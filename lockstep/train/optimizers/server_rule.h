#pragma once

#include <memory>
#include <string>

#include "lockstep/fwd.h"
#include "lockstep/ps/update_rule.h"

namespace lockstep {

// The optimizer that `spec` (OptimizerSpec::to_text()) describes, over one variable of a parameter server: a ps::RuleFactory.
// The same numbers, bit for bit, as the same optimizer over this tensor in one process that gets the same gradients in the same
// order. A schedule counts this variable's updates. clipnorm is of this tensor, which may be one part of a larger variable.
//
// Rows: SGD without momentum and Adagrad use them as LibTorch uses a sparse gradient. The others add up what belongs to one
// row, and then change the touched rows of the variable and of their state, and no others. Weight decay changes the touched
// rows, too, once each.
//
// Throws kInvalidArgument for a text that describes no optimizer, and for a value that is neither float32 nor float64;
// kUnimplemented for what one variable's server cannot do: global_clipnorm, use_ema, gradient_accumulation_steps.
std::unique_ptr<ps::UpdateRule> make_server_rule(const std::string& spec, const at::Tensor& value);

}  // namespace lockstep

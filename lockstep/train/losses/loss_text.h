#pragma once

#include <string>

#include "lockstep/train/losses/loss.h"

// Losses as text: {"loss":"huber","options":{"delta":1.0},"reduction":"sum"}; one's own by the name of its function:
// {"function":"...","name":"mine","reduction":"sum"}.

namespace lockstep::losses {

// How text describes the loss that the function `kind` makes of these options. For the options of losses.h.
template <typename Options>
Loss::Description loss_text(const char* kind, const Options& options);

// A structure as text, with one more text in it.
std::string text_with(const std::string& structure, const char* name, const std::string& value);

}  // namespace lockstep::losses

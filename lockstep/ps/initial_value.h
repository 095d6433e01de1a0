#pragma once

#include "lockstep/fwd.h"
#include "lockstep/ps/store_messages.h"

namespace lockstep::ps {

// Fills a variable's value as its description says (not kGiven): row r of the whole variable has the same numbers whatever
// parts there are. Random numbers need a floating type: the description was checked.
void fill_initial(at::Tensor& value, const Description& description);

}  // namespace lockstep::ps

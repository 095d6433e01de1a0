#pragma once

#include "lockstep/data/dataset.h"

namespace lockstep::data::internal {

// `dataset` with prefetch() at its end, unless it is made ahead already: every further thread that hands batches on takes a
// core from a replica in every step.
Dataset made_ahead(const Dataset& dataset);

}  // namespace lockstep::data::internal

#pragma once

#include <vector>

#include "lockstep/fwd.h"
#include "lockstep/observe/step_stats.h"

namespace lockstep {

// Everybody's times, by worker, for a StepStats. All workers call it, in the same step, outside run(): one small message each.
// Without other workers: what was given.
std::vector<StepTimes> exchange_step_times(const Strategy& strategy, const StepTimes& mine);

}  // namespace lockstep

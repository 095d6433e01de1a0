#pragma once

#include <cstdint>
#include <vector>

#include "lockstep/fwd.h"
#include "lockstep/observe/step_stats.h"

namespace lockstep::internal {

// What a worker tells the others before a step.
struct StepNews {
  double rows = 0;          // of its part of the batch
  double is_stopping = 0;   // it wants to end after this step
  double is_preempted = 0;  // it has been told to go
  StepTimes times = {};     // of the step before
};

// Everybody's, by worker; one's own alone where there are no others (null). All workers call it.
std::vector<StepNews> exchange_news(WorkerGroup* workers, const StepNews& mine);

}  // namespace lockstep::internal

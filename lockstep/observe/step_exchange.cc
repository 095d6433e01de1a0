#include "lockstep/observe/step_exchange.h"

#include "lockstep/collective/worker_group.h"
#include "lockstep/strategy/strategy.h"

namespace lockstep {

std::vector<StepTimes> exchange_step_times(const Strategy& strategy, const StepTimes& mine) {
  WorkerGroup* const workers = strategy.replicas().workers();
  if (workers == nullptr) return {mine};
  std::vector<StepTimes> all;
  for (const auto& bytes : workers->exchange("the times of a step", mine.to_bytes()))
    all.push_back(StepTimes::from_bytes(bytes));
  return all;
}

}  // namespace lockstep

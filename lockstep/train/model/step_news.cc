#include "lockstep/train/model/step_news.h"

#include <cstring>
#include <string>

#include "lockstep/base/error.h"
#include "lockstep/collective/worker_group.h"

namespace lockstep::internal {

std::vector<StepNews> exchange_news(WorkerGroup* workers, const StepNews& mine) {
  if (workers == nullptr) return {mine};
  std::vector<StepNews> all;
  for (const auto& text : workers->exchange("a step", std::string(reinterpret_cast<const char*>(&mine), sizeof mine))) {
    if (text.size() != sizeof(StepNews)) throw Error(ErrorCode::kInternal, "a step's news of another size");
    std::memcpy(&all.emplace_back(), text.data(), sizeof(StepNews));
  }
  return all;
}

}  // namespace lockstep::internal

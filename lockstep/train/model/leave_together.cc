#include "lockstep/train/model/leave_together.h"

#include <string>

#include "lockstep/base/str.h"
#include "lockstep/collective/worker_group.h"

namespace lockstep::internal {

void throw_if_failed(WorkerGroup* workers, const Training& training) {
  const auto& mine = training.failure();
  const auto text = mine ? str(static_cast<int>(mine->code()), " ", mine->message()) : std::string();
  const auto all = workers == nullptr ? std::vector{text} : workers->exchange("why training ends", text);
  if (training.thrown()) std::rethrow_exception(training.thrown());
  if (workers == nullptr && mine) throw Error(*mine);
  for (std::size_t worker = 0; worker < all.size(); ++worker) {
    if (all[worker].empty()) continue;
    const auto space = all[worker].find(' ');
    throw Error(static_cast<ErrorCode>(std::stoi(all[worker].substr(0, space))),
                str("worker ", worker, ": ", all[worker].substr(space + 1)));
  }
}

}  // namespace lockstep::internal

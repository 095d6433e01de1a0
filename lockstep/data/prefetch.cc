#include "lockstep/data/prefetch.h"

#include <ATen/ThreadLocalState.h>

#include <utility>

#include "lockstep/base/log.h"
#include "lockstep/base/modest_threads.h"
#include "lockstep/base/str.h"
#include "lockstep/base/thread.h"
#include "lockstep/data/batch_memory.h"

namespace lockstep::data::internal {

std::jthread start_data_thread(const std::string& name, std::function<void(std::stop_token)> body) {
  // It wakes when a batch is taken, which is when the replicas begin their step: the last of them to begin is waited for.
  const ModestThreads modest;
  return start_thread(name, [body = std::move(body), settings = at::ThreadLocalState(),
                             are_pinned = PinnedBatches::are_wanted()](std::stop_token stop) {
    const at::ThreadLocalStateGuard guard(settings);
    const PinnedBatches batches(are_pinned);
    body(std::move(stop));
  });
}

void report_slow_input(const std::string& name, std::chrono::steady_clock::time_point since) {
  const auto seconds = std::chrono::duration_cast<std::chrono::seconds>(std::chrono::steady_clock::now() - since).count();
  log_warning(lockstep::str(name, ": the input pipeline has given nothing for ", seconds, " s; still waiting"));
}

}  // namespace lockstep::data::internal

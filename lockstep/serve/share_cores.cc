#include "lockstep/serve/share_cores.h"

#include <ATen/Parallel.h>

#include <algorithm>

#include "lockstep/base/environment.h"
#include "lockstep/base/thread.h"
#include "lockstep/device/allocator.h"
#include "lockstep/device/max_pool.h"

namespace lockstep::internal {

int threads_of_task(const ClusterSpec& spec, const Task& task, int cores) {
  const auto host = [](const std::string& address) { return address.substr(0, address.rfind(':')); };
  const auto here = host(spec.task_address(task.type, task.index));
  int tasks = 0;
  for (const std::string job : {"ps", "worker"})
    if (spec.has_job(job))
      for (const auto& [index, address] : spec.tasks(job)) tasks += host(address) == here ? 1 : 0;
  return std::max(1, cores / std::max(1, tasks));
}

void prepare_process(const ClusterSpec& spec, const Task& task) {
  if (task.type == "worker") {
    keep_freed_memory();
    use_own_max_pool();
  }
  if (Environment().get("OMP_NUM_THREADS")) return;
  // This thread's number is also what threads that are started later begin with.
  at::set_num_threads(std::min(at::get_num_threads(), threads_of_task(spec, task, available_cores())));
}

}  // namespace lockstep::internal

#pragma once

#include <sys/types.h>

#include <string>
#include <vector>

#include "tests/oracle_runner/case.h"

namespace lockstep::oracle {

// Processes of this program that are the workers of one MultiWorkerMirroredStrategy on this machine's own network. They
// answer case after case.
class WorkerPool {
 public:
  explicit WorkerPool(int workers);
  ~WorkerPool();
  WorkerPool(const WorkerPool&) = delete;
  WorkerPool& operator=(const WorkerPool&) = delete;

  // What every worker answers, by rank. Throws std::runtime_error when one does not, in time.
  std::vector<Json> ask(const Case& one);

 private:
  struct Worker {
    pid_t process = 0;
    int to = -1;
    int from = -1;
    std::string read = "";  // beyond the last line
  };

  static std::string read_line(Worker& worker);

  std::vector<Worker> workers_;
};

// The pool of that size; one that failed is replaced.
WorkerPool& pool_of(int workers);
void end_pool(int workers);

// What a worker process does: `oracle_test --worker`.
int serve_as_worker();

}  // namespace lockstep::oracle

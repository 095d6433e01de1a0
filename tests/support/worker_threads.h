#pragma once

#include <functional>
#include <memory>
#include <thread>
#include <vector>

#include "lockstep/collective/shm_transport.h"
#include "lockstep/collective/worker_group.h"
#include "tests/support/key_value_store.h"

// The workers of a job as threads of one process, for unit tests.

namespace lockstep::testing {

// Every worker on a thread of its own, in shared memory. `store`: what they find each other in, for more engines.
inline void on_workers(const std::vector<int>& replicas, const std::function<void(WorkerGroup&, KeyValueStore&)>& body) {
  KeyValueStore store;
  std::vector<std::jthread> threads;
  const auto size = static_cast<int>(replicas.size());
  for (int rank = 0; rank < size; ++rank)
    threads.emplace_back([&, rank] {
      WorkerLayout layout{rank, replicas, std::vector<int>(replicas.size(), 0), {}};
      auto shm = std::make_shared<ShmTransport>(store.setup(rank, size));
      WorkerGroup group(std::make_unique<WorkerBytes>(layout, shm, nullptr));
      group.barrier("all are here");  // nobody ends before the others have opened its memory
      body(group, store);
    });
}

inline void on_workers(const std::vector<int>& replicas, const std::function<void(WorkerGroup&)>& body) {
  on_workers(replicas, [&](WorkerGroup& group, KeyValueStore&) { body(group); });
}

}  // namespace lockstep::testing

#pragma once

#include <exception>
#include <functional>
#include <memory>
#include <vector>

#include "lockstep/collective/group.h"
#include "lockstep/collective/rendezvous.h"
#include "lockstep/collective/worker_group.h"
#include "lockstep/device/stream_fence.h"

namespace lockstep {

// A group of all replicas of a job, of which some are threads of this process. Ranks are replica ids.
//
// Note [two meetings]
// In every call the replicas of this process meet; then local replica 0 speaks for all of them to the other workers while
// its neighbours wait; then they meet again and take what came. An error that it gets there is thrown by all of them.
class WorkerHub {
 public:
  // Both outlive the hub.
  WorkerHub(Rendezvous& rendezvous, WorkerGroup& workers);
  ~WorkerHub();

  // The end of this process's r-th replica.
  Group& group(int local_replica);

 private:
  class Member;
  struct Slot;

  // On every replica: calls `body` on local replica 0's thread, between two meetings.
  void together(int local_replica, const char* name, const std::function<void()>& body);
  std::vector<std::vector<at::Tensor>> all_inputs() const;

  // Const after construction.
  Rendezvous& rendezvous_;
  WorkerGroup& workers_;
  std::vector<std::unique_ptr<Member>> members_;

  // Written by replica r before it meets the others, read by all between two meetings.
  std::unique_ptr<Slot[]> slots_;

  // Written by local replica 0 between two meetings, read by all after the second.
  std::exception_ptr error_;
  std::vector<at::Tensor> gathered_;
  StreamFence given_;  // that replica's stream has the results
};

}  // namespace lockstep

#pragma once

#include <ATen/Parallel.h>

#include <algorithm>

#include "lockstep/base/error.h"
#include "lockstep/base/str.h"
#include "lockstep/base/thread.h"

namespace lockstep::internal {

// How many threads an operation of one of so many replicas may use, when `wanted` is asked for; 0: what is right here.
// Throws kInvalidArgument for a negative number.
inline int intra_op_threads_for(int wanted, int replicas) {
  if (wanted < 0)
    throw Error(ErrorCode::kInvalidArgument,
                str("intra_op_threads is ", wanted, "; it must be 0 (the cores divided by the replicas) or more"));
  if (wanted > 0) return wanted;
  // One replica has the whole machine: what the program set for itself stays.
  return replicas == 1 ? at::get_num_threads() : std::max(1, available_cores() / replicas);
}

// Replica 0 borrows the caller's thread, so the caller's number of intra-op threads is put back afterwards.
class IntraOpThreads {
 public:
  explicit IntraOpThreads(int threads) : previous_(at::get_num_threads()) {
    if (previous_ != threads) at::set_num_threads(threads);
  }
  ~IntraOpThreads() {
    if (at::get_num_threads() != previous_) at::set_num_threads(previous_);  // user code may have set it too
  }
  IntraOpThreads(const IntraOpThreads&) = delete;
  IntraOpThreads& operator=(const IntraOpThreads&) = delete;

 private:
  const int previous_;
};

}  // namespace lockstep::internal

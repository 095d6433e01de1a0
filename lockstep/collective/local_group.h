#pragma once

#include <memory>
#include <vector>

#include "lockstep/collective/chunk.h"
#include "lockstep/collective/group.h"
#include "lockstep/collective/rendezvous.h"

namespace lockstep {

// The `local` engine: a group whose participants are threads of this process. Sums go directly between their buffers.
//
// Note [local all_reduce]
// 1. Everybody publishes its tensors and meets the others.
// 2. Every tensor is cut into one contiguous chunk a rank (small ones belong to one rank whole). Each rank sums its
//    chunks over everybody's inputs, in canonical order, and writes the result to everybody's outputs.
// 3. Everybody meets again: nobody's buffers are touched after that.
class LocalHub {
 public:
  // `rendezvous` is shared with whatever else these threads meet at, and outlives the hub.
  explicit LocalHub(Rendezvous& rendezvous);
  ~LocalHub();

  // Rank r's end; lives as long as the hub.
  Group& group(int rank);

 private:
  class Member;
  struct Slot;

  // Const after construction.
  Rendezvous& rendezvous_;
  std::vector<std::unique_ptr<Member>> members_;

  // Written by rank r before it meets the others, read by all between two meetings.
  std::unique_ptr<Slot[]> slots_;
};

}  // namespace lockstep

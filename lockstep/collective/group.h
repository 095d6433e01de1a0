#pragma once

#include <span>
#include <string>
#include <vector>

#include "lockstep/collective/reduce_op.h"
#include "lockstep/fwd.h"

namespace lockstep {

// One participant's end of a group of equals that exchange tensors. The whole contract of an engine.
//
// Every participant makes the same calls in the same order, with equal shapes and dtypes where nothing else is said;
// each call blocks until all have made it, or fails on all of them: kInvalidArgument when the values do not fit
// together (the group stays usable), kFailedPrecondition when the calls differ, kDeadlineExceeded naming who is
// missing, kUnavailable when a participant is lost, kAborted when another failed first.
class Group {
 public:
  virtual ~Group() = default;

  virtual int rank() const = 0;
  virtual int size() const = 0;

  // outputs[k] = the sum of all participants' inputs[k], in the canonical order (tree_sum.h): the same bits whatever
  // the engine. An output has its input's shape and dtype and may be the input itself.
  virtual void all_reduce(std::span<const at::Tensor> inputs, std::span<at::Tensor> outputs) = 0;

  // Everybody's value, by rank, on this participant's device. Shapes may differ.
  virtual std::vector<at::Tensor> all_gather(const at::Tensor& value) = 0;

  // `value` becomes root's value.
  virtual void broadcast(at::Tensor& value, int root) = 0;

  virtual void barrier(const char* name) = 0;

  // Lets every participant that waits, or calls later, fail with kAborted. Thread-safe.
  virtual void abort(const std::string& reason) noexcept = 0;
};

}  // namespace lockstep

#pragma once

#include <map>
#include <string>
#include <utility>
#include <vector>

#include "lockstep/variable/named_tensors.h"

namespace lockstep {

// What a checkpoint keeps of one thing.
struct CheckpointPart {
  NamedTensors tensors = {};
  std::map<std::string, std::string> values = {};  // texts or bytes

  // Null: not there.
  const at::Tensor* find(const std::string& name) const;
  // Throws kInvalidArgument when it is not there.
  const std::string& value(const std::string& name) const;
};

// Something that a checkpoint can keep and bring back. Optimizers, models and programs implement it.
class Trackable {
 public:
  virtual ~Trackable() = default;

  // Called on every worker, outside run(), in the same order everywhere: it may communicate. Tensors may be the live ones: they
  // are copied, or written, before Checkpoint's caller goes on. The first worker's answer is what is kept.
  virtual CheckpointPart save() = 0;

  // The same on every worker. `part` is gone after the call, and its tensors are views of a file in memory: copy them.
  virtual void restore(const CheckpointPart& part) = 0;

  // What would keep `part` from being restored, a line each that names the thing: "conv1.weight: missing". Asked of everything
  // that is tracked before anything is changed.
  virtual std::vector<std::string> problems(const CheckpointPart& part) const { return {}; }

  // Its tensors get a file of their own, with their own names, for whoever opens it elsewhere.
  virtual bool is_weights() const { return false; }
};

// A line for each of `expected` that `part` has not, or has in another shape or kind of number, and for each tensor of `part`
// that is not expected. For Trackable::problems.
std::vector<std::string> compare_tensors(const NamedTensors& expected, const CheckpointPart& part);

// Copies each tensor of `part` into the one of `into` that has its name and shape; the others stay as they are. For
// Trackable::restore: on CPUs it is as fast as the memory, which Tensor::copy_ is not.
void copy_tensors(const NamedTensors& into, const CheckpointPart& part);

}  // namespace lockstep

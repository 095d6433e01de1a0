#pragma once

#include <ATen/core/Tensor.h>

#include <memory>
#include <string>
#include <vector>

#include "lockstep/collective/indexed_slices.h"
#include "lockstep/variable/variable.h"

// Variables whose values live in other processes. Not for users: a strategy brings them.

namespace lockstep {

// One variable that lives elsewhere. Thread-safe.
class RemoteVariable {
 public:
  virtual ~RemoteVariable() = default;

  virtual at::Tensor read() const = 0;
  // These rows, in this order; they exist.
  virtual at::Tensor read_rows(const at::Tensor& ids) const = 0;
  // Shapes and dtypes fit. kAssign, kAdd and kSub.
  virtual void write(VariableWrite how, const at::Tensor& value) = 0;
  virtual void write_rows(VariableWrite how, const IndexedSlices& rows) = 0;
  // Where it is: one name, or one for each shard.
  virtual std::vector<std::string> devices() const = 0;
  // Its parts along the first dimension; empty: it is whole.
  virtual std::vector<Variable> shards() const { return {}; }
};

struct RemoteDescription {
  std::string name;
  std::vector<std::int64_t> sizes;
  at::ScalarType dtype = at::kFloat;
  bool is_trainable = true;
  VariableAggregation aggregation = VariableAggregation::kNone;
};

namespace internal {

// A handle of a variable that is there already: a shard, or one that another process has made.
Variable handle_of(std::shared_ptr<RemoteVariable> remote, const RemoteDescription& description,
                   std::shared_ptr<ReplicaSet> replicas);

}  // namespace internal

// Where a strategy's variables are made.
class VariableHost {
 public:
  virtual ~VariableHost() = default;

  // `initial` gives contiguous tensors on the CPU. `beside`: on the same task as this one, and whole; null: where the host
  // wants it.
  virtual std::shared_ptr<RemoteVariable> create(const RemoteDescription& description, const PartInitializer& initial,
                                                 const Variable* beside) = 0;

  // Whether this process only hands out work: its replicas are there for small things, and read no datasets.
  virtual bool is_on_coordinator() const noexcept = 0;

  // On a coordinator: what one of its workers computes on, a replica each ("/device:GPU:0"), which train in sync. Empty: it is
  // what this process has.
  virtual std::vector<std::string> worker_devices() const { return {}; }
};

}  // namespace lockstep

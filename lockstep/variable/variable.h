#pragma once

#include <ATen/core/Tensor.h>

#include <functional>
#include <iosfwd>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "lockstep/collective/indexed_slices.h"
#include "lockstep/fwd.h"
#include "lockstep/replica/distributed_values.h"

namespace lockstep {

// When the components of a variable are brought together.
enum class VariableSynchronization {
  kAuto,     // the strategy chooses: kOnWrite
  kNone,     // not supported under a strategy
  kOnWrite,  // every write goes to all components: they stay equal (a mirrored variable)
  kOnRead,   // every replica writes its own; a read across replicas aggregates (counters, running statistics)
};

// How the replicas' values become one.
enum class VariableAggregation { kNone, kSum, kMean, kOnlyFirstReplica };

enum class VariableWrite { kAssign, kAdd, kSub, kMul, kDiv, kMin, kMax };

std::ostream& operator<<(std::ostream& out, VariableSynchronization synchronization);
std::ostream& operator<<(std::ostream& out, VariableAggregation aggregation);

// Makes a part of a variable: the rows from offset[0] on, of this shape. Offsets after the first are 0.
using PartInitializer =
    std::function<at::Tensor(const std::vector<std::int64_t>& shape, const std::vector<std::int64_t>& offset)>;

struct VariableOptions {
  std::string name = "";                         // "": "Variable"
  std::optional<bool> trainable = std::nullopt;  // absent: true, but false for kOnRead
  VariableSynchronization synchronization = VariableSynchronization::kAuto;
  VariableAggregation aggregation = VariableAggregation::kNone;
};

// State that a strategy keeps in step. Made inside scope() (or inside run()) it has one component on each replica's
// device; made outside it has one, and belongs to no strategy. A Variable is a handle: copies name the same state.
//
// Reads and writes mean what the calling thread's context says:
// - inside a replica: that replica's component. A write to a mirrored variable with an aggregation first combines the
//   replicas' values (all replicas must make it), without one it changes the replica's own component only.
// - across replicas, or outside every scope: a mirrored variable has one value; writes go to all components. A
//   variable synchronised on read is aggregated by a read.
// - inside update(): the component that is being updated.
// Under another strategy, and for a variable made outside scope() inside a replica, everything is kFailedPrecondition.
class Variable {
 public:
  // All components start equal to `initial`; a floating point variable that is trainable requires gradients.
  // Under a strategy kNone synchronisation and a mean of integers are kInvalidArgument.
  explicit Variable(const at::Tensor& initial, const VariableOptions& options = {});
  // A float32 scalar.
  explicit Variable(double initial, const VariableOptions& options = {});
  // `initializer` is called once, whatever the number of replicas.
  explicit Variable(const std::function<at::Tensor()>& initializer, const VariableOptions& options = {});
  // The same, for a variable that a strategy may divide: `initializer` is called once for each shard, so that the whole is
  // nowhere; else once, for all of `shape`. Throws kInvalidArgument when it gives another shape or dtype.
  Variable(const PartInitializer& initializer, const std::vector<std::int64_t>& shape, at::ScalarType dtype,
           const VariableOptions& options = {});

  const std::string& name() const;
  bool trainable() const;
  VariableSynchronization synchronization() const;
  VariableAggregation aggregation() const;
  std::size_t size() const;                           // components
  const std::vector<at::Tensor>& components() const;  // live, by local replica
  std::vector<std::string> component_names() const;   // "w", "w/replica_1", ...
  std::vector<std::string> devices() const;
  // Of a variable that is divided over parameter servers: its parts along the first dimension. Empty: it is whole.
  std::vector<Variable> shards() const;
  bool is_remote() const { return remote() != nullptr; }  // it lives on parameter servers
  RemoteVariable* remote() const;
  bool is_distributed() const;   // made under a strategy
  ReplicaSet* replicas() const;  // whose; null outside every strategy

  at::IntArrayRef sizes() const;
  at::ScalarType scalar_type() const;

  // The value here: live where a component answers (autograd reaches it), a new tensor where components are aggregated.
  at::Tensor value() const;
  // A copy that later writes do not change. Differentiable.
  at::Tensor read_value() const;
  operator at::Tensor() const { return value(); }  // NOLINT: a variable is used like a tensor

  // Writes. Shapes must be equal; the value is converted to the variable's dtype. A number is the same value in every
  // replica: a variable with SUM refuses it there (kInvalidArgument), since a sum needs one value from each.
  Variable& assign(const at::Tensor& value);
  Variable& assign_add(const at::Tensor& value);
  Variable& assign_sub(const at::Tensor& value);
  Variable& assign(double value);
  Variable& assign_add(double value);
  Variable& assign_sub(double value);
  // Component by component.
  Variable& assign(const Mirrored<at::Tensor>& value);
  Variable& assign(const Variable& value);

  // Row-wise writes at slices.indices. Inside replicas SUM and MEAN first bring the replicas' rows together; min, max
  // and update need kNone or kOnlyFirstReplica. kUnimplemented for variables synchronised on read.
  Variable& scatter_add(const IndexedSlices& slices);
  Variable& scatter_sub(const IndexedSlices& slices);
  Variable& scatter_mul(const IndexedSlices& slices);
  Variable& scatter_div(const IndexedSlices& slices);
  Variable& scatter_min(const IndexedSlices& slices);
  Variable& scatter_max(const IndexedSlices& slices);
  Variable& scatter_update(const IndexedSlices& slices);

  // These rows, a new tensor; of a remote variable only they travel. Throws kOutOfRange for a row that is not there.
  at::Tensor rows(const at::Tensor& ids) const;

  // The one value that a checkpoint keeps, whatever the number of replicas, and its inverse.
  at::Tensor saved_value() const;
  void restore(const at::Tensor& value);

  friend bool operator==(const Variable& a, const Variable& b) { return a.state_ == b.state_; }

  // Arithmetic is the tensors'. Include <ATen/ATen.h> or <torch/torch.h> to use it.
  template <typename T>
  friend auto operator+(const Variable& a, const T& b) {
    return a.value() + b;
  }
  template <typename T>
  friend auto operator-(const Variable& a, const T& b) {
    return a.value() - b;
  }
  template <typename T>
  friend auto operator*(const Variable& a, const T& b) {
    return a.value() * b;
  }
  template <typename T>
  friend auto operator/(const Variable& a, const T& b) {
    return a.value() / b;
  }
  friend std::ostream& operator<<(std::ostream& out, const Variable& variable);

  struct State;
  // For those who bring variables into being: a handle of this one.
  explicit Variable(std::shared_ptr<State> state) : state_(std::move(state)) {}

 private:
  Variable& write(VariableWrite how, const at::Tensor& value, bool is_literal);
  Variable& scatter(VariableWrite how, const char* what, const IndexedSlices& slices);
  int here() const;

  std::shared_ptr<State> state_;
};

namespace internal {

// While one is alive on a thread, that thread is inside the default strategy's scope.
class DefaultScope {
 public:
  DefaultScope();
  ~DefaultScope();
  DefaultScope(const DefaultScope&) = delete;
  DefaultScope& operator=(const DefaultScope&) = delete;
};

// While one is alive on a thread, remote variables made there go to the same task as `variable`, whole.
class BesideGuard {
 public:
  explicit BesideGuard(const Variable& variable);
  ~BesideGuard();
  BesideGuard(const BesideGuard&) = delete;
  BesideGuard& operator=(const BesideGuard&) = delete;

 private:
  const Variable variable_;
  const Variable* const previous_;
};

// While one is alive on a thread, the components of variables made there are on that logical device of each replica.
class LogicalDeviceGuard {
 public:
  explicit LogicalDeviceGuard(int logical_device);
  ~LogicalDeviceGuard();
  LogicalDeviceGuard(const LogicalDeviceGuard&) = delete;
  LogicalDeviceGuard& operator=(const LogicalDeviceGuard&) = delete;

 private:
  const int previous_;
};

// "foo_1/bar_2" -> "foo/bar": how variables made in different replicas are recognised as one.
std::string canonical_variable_name(const std::string& name);

}  // namespace internal
}  // namespace lockstep

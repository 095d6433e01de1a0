#include "lockstep/strategy/strategy.h"

#include <ATen/ATen.h>

#include <algorithm>
#include <atomic>

#include "lockstep/base/log.h"
#include "lockstep/base/str.h"
#include "lockstep/collective/dense.h"
#include "lockstep/collective/over_workers.h"
#include "lockstep/data/numpy.h"
#include "lockstep/replica/mode.h"
#include "lockstep/strategy/default_strategy.h"
#include "lockstep/strategy/strategy_extended.h"
#include "lockstep/variable/variable_host.h"

namespace lockstep {
namespace {

bool is_coordinator(const ReplicaSet& replicas) {
  const auto& host = replicas.options().variable_host;
  return host != nullptr && host->is_on_coordinator();
}

void note_use_on_coordinator(const ReplicaSet& replicas, const char* what) {
  if (is_coordinator(replicas))
    log_once(LogLevel::kWarning, str(what,
                                     "() of a ParameterServerStrategy was called on the coordinator, which it then runs on "
                                     "alone; call it in a function that is given to ClusterCoordinator::schedule()"));
}

void refuse_input_on_coordinator(const ReplicaSet& replicas, const char* what) {
  if (is_coordinator(replicas))
    throw Error(ErrorCode::kInvalidArgument,
                str(what,
                    "() of a ParameterServerStrategy on the coordinator: workers read the data; call it in a function that is "
                    "given to ClusterCoordinator::create_per_worker_resource(), or give the function that makes the dataset "
                    "to create_per_worker_dataset()"));
}

// What experimental_set_strategy entered.
thread_local std::unique_ptr<Scope> t_set_strategy;

// Checks and normalises the axes of one replica's tensor.
std::vector<std::int64_t> axes_of(const Axis& axis, const at::Tensor& value) {
  std::vector<std::int64_t> axes;
  for (const auto a : axis.axes()) {
    if (a < -value.dim() || a >= value.dim())
      throw Error(ErrorCode::kInvalidArgument,
                  lockstep::str("reduce: axis ", a, " does not exist in a value of shape ", value.sizes(), "; it must be in [",
                                -value.dim(), ", ", value.dim(), ")"));
    const auto positive = a < 0 ? a + value.dim() : a;
    if (std::ranges::count(axes, positive) > 0)
      throw Error(ErrorCode::kInvalidArgument, str("reduce: axis ", a, " is named twice; name each dimension once"));
    axes.push_back(positive);
  }
  return axes;
}

at::Tensor sum_over(const at::Tensor& value, const std::vector<std::int64_t>& axes) {
  // Without the dtype LibTorch would widen integers; no axes would mean all of them.
  return axes.empty() ? value : at::sum(value, axes, /*keepdim=*/false, value.scalar_type());
}

}  // namespace

Strategy::Strategy(std::vector<LogicalDevice> devices, const ReplicaSetOptions& options,
                   std::shared_ptr<const CrossDeviceOps> cross_device_ops)
    : owned_(std::make_shared<ReplicaSet>(this, std::move(devices), options)),
      replicas_(owned_.get()),
      cross_device_ops_(std::move(cross_device_ops)),
      extended_(std::make_unique<StrategyExtended>(*this)) {}

Strategy::Strategy(ReplicaSet& borrowed)
    : replicas_(&borrowed),
      cross_device_ops_(default_cross_device_ops()),
      extended_(std::make_unique<StrategyExtended>(*this)) {}

Strategy::~Strategy() {
  if (t_set_strategy && internal::mode_depth() == 1 && internal::current_mode().replicas == replicas_) t_set_strategy.reset();
  if (internal::current_mode().replicas == replicas_ && !is_default())
    log(LogLevel::kError, "a strategy is destroyed inside its own scope(); let the scope end first");
  if (owned_) owned_->retire();
}

int Strategy::num_replicas_in_sync() const {
  const auto& host = replicas_->options().variable_host;
  const auto of_worker = host == nullptr ? std::vector<std::string>() : host->worker_devices();
  return of_worker.empty() ? replicas_->global_size() : static_cast<int>(of_worker.size());
}
StrategyExtended& Strategy::extended() { return *extended_; }
bool Strategy::is_default() const { return replicas_ == &internal::default_replicas(); }

Scope Strategy::scope() {
  Scope scope;
  if (is_default()) {
    if (has_strategy())
      throw Error(ErrorCode::kFailedPrecondition,
                  "the default strategy's scope() was called inside another strategy; strategies' scopes must not be nested");
    scope.default_scope_ = std::make_unique<internal::DefaultScope>();
    return scope;
  }
  if (has_strategy()) require_cross_replica_or_default("scope");
  scope.enter(owned_);
  return scope;
}

void Strategy::require_cross_replica_or_default(const char* what) const {
  const auto mode = internal::current_mode();
  if (mode.replicas == nullptr || mode.replicas == &internal::default_replicas()) {
    if (mode.context == nullptr || is_default() || mode.replicas == nullptr) return;
  }
  const bool is_other_default = mode.replicas == &internal::default_replicas();
  if (mode.replicas != replicas_ && !is_other_default) internal::throw_mixed_strategies(str(what, "() of ", name()).c_str());
  if (mode.context != nullptr && !is_default())
    throw Error(ErrorCode::kFailedPrecondition,
                str(what,
                    "() was called inside a replica; it needs cross-replica context: call it outside run(), or inside "
                    "get_replica_context()->merge_call()"));
}

void Strategy::require_one_each(std::size_t components, const char* what) const {
  if (components == static_cast<std::size_t>(replicas_->size())) return;
  throw Error(ErrorCode::kInvalidArgument, str(what, ": the value has ", components, " components and ", name(), " has ",
                                               replicas_->size(), " replicas; it must come from the same strategy"));
}

void Strategy::note_whole_element() const {
  static std::atomic<bool> has_said{false};
  if (replicas_->size() > 1 && !has_said.exchange(true, std::memory_order_relaxed))
    log_once(LogLevel::kWarning,
             "run: a dataset element that was not distributed is given whole to every replica, which all train on the same "
             "rows; iterate over strategy.experimental_distribute_dataset(dataset) to split it");
}

void Strategy::run_replicas(FunctionRef<void(ReplicaContext&)> body) {
  require_cross_replica_or_default("run");
  note_use_on_coordinator(*replicas_, "run");
  if (!is_default()) return replicas_->run(body);
  ReplicaContext context(*replicas_, 0);
  const internal::ModeGuard mode({replicas_, &context});
  body(context);
}

at::Tensor Strategy::reduce_leaf(ReduceOp op, std::span<const at::Tensor> values, const Axis& axis) {
  note_use_on_coordinator(*replicas_, "reduce");
  if (!axis.is_given()) {
    if (is_default()) return values[0];
    if (replicas_->workers() != nullptr) return reduce_over_workers(*replicas_->workers(), op, values, "reduce");
    return cross_device_ops_->reduce(op, values);
  }
  std::vector<at::Tensor> sums;
  std::int64_t count = 0;
  std::int64_t total = 0;  // of all workers
  for (const auto& given : values) {
    require_dense(given, "reduce");
    const auto value = op == ReduceOp::kMean ? without_overflow(given) : given;
    const auto axes = axes_of(axis, value);
    std::int64_t elements = 1;
    for (const auto a : axes) elements *= value.size(a);
    count += elements;
    sums.push_back(sum_over(value, axes));
  }
  if (replicas_->workers() == nullptr) {
    const auto sum = cross_device_ops_->reduce(ReduceOp::kSum, sums);
    return op == ReduceOp::kSum ? sum : mean_of_sum(sum, count);
  }
  const auto sum = reduce_over_workers(*replicas_->workers(), ReduceOp::kSum, sums, "reduce");
  if (op == ReduceOp::kSum) return sum;
  for (const auto& other : replicas_->workers()->exchange("the number of elements of a mean", std::to_string(count)))
    total += std::stoll(other);
  return mean_of_sum(sum, total);
}

IndexedSlices Strategy::reduce_slices(ReduceOp op, std::vector<IndexedSlices> values) {
  const auto count = replicas_->global_size();
  auto all = replicas_->workers() == nullptr ? concatenate(values) : gather_slices(*replicas_->workers(), values);
  if (op == ReduceOp::kMean) all.values = mean_of_sum(all.values, count);
  return all;
}

at::Tensor Strategy::gather_leaf(std::span<const at::Tensor> values, std::int64_t axis) {
  if (replicas_->workers() == nullptr) return concatenate_values(values, axis);
  for (const auto& value : values) require_dense(value, "gather");
  return concatenate_values(replicas_->workers()->all_gather("gather", values), axis);
}

at::Tensor Strategy::reduce(ReduceOpArg op, const at::Tensor& value, const Axis& axis) {
  require_cross_replica_or_default("reduce");
  note_use_on_coordinator(*replicas_, "reduce");
  if (axis.is_given()) return reduce_leaf(op, std::vector<at::Tensor>(replicas_->size(), value), axis);
  require_dense(value, "reduce");
  // With other workers each has a value of its own.
  if (replicas_->workers() != nullptr) return reduce_values(op, replicas_->workers()->all_gather("reduce", {&value, 1}));
  const bool is_zero = value.dim() == 0 && value.item<double>() == 0;
  if (op == ReduceOp::kSum && num_replicas_in_sync() > 1 && !is_zero)
    throw Error(ErrorCode::kInvalidArgument, lockstep::str("reduce: a value that is not distributed (", value.sizes(), " ",
                                                           value.scalar_type(), ") has no sum over ", num_replicas_in_sync(),
                                                           " replicas; give what run() returned, or use MEAN"));
  return value;
}

double Strategy::reduce(ReduceOpArg op, double value) {
  return reduce(op, at::scalar_tensor(value, at::kDouble)).item<double>();
}

at::Tensor Strategy::reduce(ReduceOpArg op, const Variable& value) {
  if (value.synchronization() == VariableSynchronization::kOnRead || !value.is_distributed())
    return reduce(op, PerReplica<at::Tensor>(value.components()));
  return reduce(op, Mirrored<at::Tensor>(value.components()));
}

at::Tensor Strategy::gather(const PerReplica<IndexedSlices>& value, std::int64_t axis) {
  std::vector<at::Tensor> dense;
  for (const auto& slices : value) dense.push_back(to_dense(slices));
  return gather(PerReplica<at::Tensor>(std::move(dense)), axis);
}

at::Tensor Strategy::gather(const at::Tensor& value, std::int64_t axis) {
  require_cross_replica_or_default("gather");
  require_dense(value, "gather");
  return replicas_->workers() == nullptr ? value : gather_leaf({&value, 1}, axis);
}

DistributedDataset Strategy::experimental_distribute_dataset(const data::Dataset& dataset, const InputOptions& options) {
  refuse_input_on_coordinator(*replicas_, "experimental_distribute_dataset");
  return DistributedDataset::from_dataset(*replicas_, dataset, options);
}

DistributedDataset Strategy::distribute_datasets_from_function(const DatasetFn& dataset_fn, const InputOptions& options) {
  refuse_input_on_coordinator(*replicas_, "distribute_datasets_from_function");
  return DistributedDataset::from_function(*replicas_, dataset_fn, options);
}

data::Dataset Strategy::experimental_make_numpy_dataset(const std::vector<std::string>& files) {
  std::vector<at::Tensor> arrays;
  for (const auto& file : files) arrays.push_back(data::read_npy(file));
  return experimental_make_numpy_dataset(arrays);
}

data::Dataset Strategy::experimental_make_numpy_dataset(const std::vector<at::Tensor>& arrays) {
  require_cross_replica_or_default("experimental_make_numpy_dataset");
  return data::Dataset::from_tensor_slices(data::Element(arrays));
}

Strategy& get_strategy() {
  const auto* replicas = internal::current_mode().replicas;
  if (replicas == nullptr || replicas == &internal::default_replicas()) return default_strategy();
  if (replicas->strategy() == nullptr)
    throw Error(ErrorCode::kFailedPrecondition, "the strategy of this scope() was destroyed; let the scope end first");
  return *replicas->strategy();
}

bool has_strategy() noexcept {
  const auto* replicas = internal::current_mode().replicas;
  return replicas != nullptr && replicas != &internal::default_replicas();
}

void experimental_set_strategy(Strategy* strategy) {
  if (internal::mode_depth() > (t_set_strategy ? 1 : 0))
    throw Error(ErrorCode::kFailedPrecondition,
                "experimental_set_strategy was called inside a strategy's scope(); call it outside every scope");
  t_set_strategy.reset();
  if (strategy != nullptr) t_set_strategy = std::make_unique<Scope>(strategy->scope());
}

namespace internal {

void require_same_structure(const std::vector<LeafList>& leaves) {
  if (leaves.empty())
    throw Error(ErrorCode::kInvalidArgument,
                "a per-replica value without components cannot be combined; give it one for each replica");
  for (std::size_t r = 1; r < leaves.size(); ++r) {
    if (leaves[r].branches == leaves[0].branches && leaves[r].dense.size() == leaves[0].dense.size() &&
        leaves[r].sparse.size() == leaves[0].sparse.size())
      continue;
    throw Error(ErrorCode::kInvalidArgument,
                str("replica 0 and replica ", r, " gave structures that differ (", join(", ", leaves[0].branches), " and ",
                    join(", ", leaves[r].branches), "); every replica must give the same lengths and keys"));
  }
}

}  // namespace internal
}  // namespace lockstep

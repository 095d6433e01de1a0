#include "lockstep/variable/variable.h"

#include <ATen/ATen.h>
#include <c10/core/GradMode.h>

#include "lockstep/base/error.h"
#include "lockstep/base/str.h"
#include "lockstep/collective/dense.h"
#include "lockstep/collective/over_workers.h"
#include "lockstep/collective/reduce_values.h"
#include "lockstep/replica/mode.h"
#include "lockstep/replica/replica_context.h"
#include "lockstep/split/split_tensor.h"
#include "lockstep/variable/variable_state.h"

namespace lockstep {
namespace {

// What one replica brings to an aggregated write.
struct Offer {
  const Variable::State* state;
  const char* what;
  const at::Tensor* value;
  bool is_literal;
};

// The value that all components get, from what the replicas brought.
at::Tensor combine(const Variable::State& state, const char* what, std::span<void* const> offers) {
  const auto offer = [&](std::size_t replica) -> const Offer& { return *static_cast<Offer*>(offers[replica]); };
  for (std::size_t replica = 1; replica < offers.size(); ++replica)
    if (offer(replica).state != &state || offer(replica).what != offer(0).what)
      throw Error(ErrorCode::kFailedPrecondition,
                  str("replica 0 calls ", what, " on variable '", state.name, "' where replica ", replica, " calls ",
                      offer(replica).what, " on '", offer(replica).state->name, "'; all replicas must make the same writes"));
  WorkerGroup* const workers = state.replicas->workers();
  const auto text = str(what, " in replicas, to variable '", state.name, "'");
  if (state.aggregation == VariableAggregation::kOnlyFirstReplica)
    return workers == nullptr ? *offer(0).value : value_of_first(*workers, *offer(0).value, text.c_str());
  if (state.replicas->global_size() == 1) return *offer(0).value;
  if (offer(0).is_literal) {
    if (state.aggregation == VariableAggregation::kMean) return *offer(0).value;
    throw Error(ErrorCode::kInvalidArgument,
                str(what, " on variable '", state.name, "' in a replica: a plain number (", offer(0).value->item<double>(),
                    ") cannot be reduced with SUM, which needs one value from each replica; give a tensor, or use MEAN or "
                    "ONLY_FIRST_REPLICA"));
  }
  std::vector<at::Tensor> values;
  for (std::size_t replica = 0; replica < offers.size(); ++replica) values.push_back(*offer(replica).value);
  const auto op = state.aggregation == VariableAggregation::kSum ? ReduceOp::kSum : ReduceOp::kMean;
  return workers == nullptr ? reduce_values(op, values) : reduce_over_workers(*workers, op, values, text.c_str());
}

// One of `count` equal parts of a sum: of integers rounded towards 0.
at::Tensor part_of_sum(const at::Tensor& value, std::size_t count) {
  const auto n = static_cast<std::int64_t>(count);
  if (value.scalar_type() == at::kBool) return value;
  if (value.is_complex()) return value / n;
  return value.is_floating_point() ? value.to(at::kDouble) / static_cast<double>(n) : at::div(value.to(at::kLong), n, "trunc");
}

void require_shape(const Variable::State& state, const char* what, const at::Tensor& value) {
  if (!is_dense(value)) require_dense(value, lockstep::str(what, " to variable '", state.name, "'").c_str());
  if (value.sizes() == state.components[0].sizes()) return;
  throw Error(ErrorCode::kInvalidArgument,
              lockstep::str(what, " to variable '", state.name, "' of shape ", state.components[0].sizes(),
                            ": the value has shape ", value.sizes(), "; they must be equal"));
}

}  // namespace

at::Tensor Variable::State::seen(std::size_t component) const {
  const auto& value = components[component];
  if (logical_device == 0) return value;
  const auto& home = replicas->logical_devices(static_cast<int>(component));
  return split::make_tensor({home, false, false, split::Tiling(value.sizes().vec()), {value}, {logical_device}});
}

WorkerGroup* Variable::State::workers() const { return replicas == nullptr ? nullptr : replicas->workers(); }

std::string Variable::State::read_text() const { return str("a read of variable '", name, "' across replicas"); }

at::Tensor Variable::State::reduce(ReduceOp op) const {
  return workers() == nullptr ? reduce_values(op, components).clone()
                              : reduce_over_workers(*workers(), op, components, read_text().c_str());
}

at::Tensor Variable::State::aggregate() const {
  const c10::NoGradGuard no_grad;
  switch (aggregation) {
    case VariableAggregation::kSum: return reduce(ReduceOp::kSum);
    case VariableAggregation::kMean: return reduce(ReduceOp::kMean);
    case VariableAggregation::kOnlyFirstReplica:
      return workers() == nullptr ? components[0].detach().clone()
                                  : value_of_first(*workers(), components[0], read_text().c_str());
    case VariableAggregation::kNone: break;
  }
  throw Error(ErrorCode::kInvalidArgument,
              str("variable '", name,
                  "' is synchronised on read with aggregation NONE: it has no single value across replicas; "
                  "read it inside run(), or give it SUM, MEAN or ONLY_FIRST_REPLICA"));
}

const std::string& Variable::name() const { return state_->name; }
bool Variable::trainable() const { return state_->trainable; }
VariableSynchronization Variable::synchronization() const { return state_->synchronization; }
VariableAggregation Variable::aggregation() const { return state_->aggregation; }
std::size_t Variable::size() const { return state_->components.size(); }
const std::vector<at::Tensor>& Variable::components() const { return state_->components; }
bool Variable::is_distributed() const { return state_->replicas != nullptr; }
ReplicaSet* Variable::replicas() const { return state_->replicas.get(); }

std::vector<std::string> Variable::component_names() const {
  std::vector<std::string> names;
  for (std::size_t i = 0; i < size(); ++i) names.push_back(i == 0 ? name() : str(name(), "/replica_", i));
  return names;
}

RemoteVariable* Variable::remote() const { return state_->remote.get(); }
std::vector<Variable> Variable::shards() const { return is_remote() ? state_->remote->shards() : std::vector<Variable>(); }
at::IntArrayRef Variable::sizes() const { return state_->components[0].sizes(); }
at::ScalarType Variable::scalar_type() const { return state_->components[0].scalar_type(); }

std::vector<std::string> Variable::devices() const {
  std::vector<std::string> names;
  if (is_remote()) return state_->remote->devices();
  if (state_->replicas == nullptr) return {find_logical_device("CPU:0").name};
  for (const auto& device : state_->replicas->devices()) names.push_back(device.name);
  return names;
}

// The component that the calling thread reads and writes, or -1 for "all of them".
int Variable::here() const {
  const auto mode = internal::current_mode();
  if (state_->replicas != nullptr) {
    if (mode.replicas == &internal::default_replicas()) return internal::current_update_replica();
    return internal::local_replica_of(state_->replicas.get(), str("variable '", name(), "'").c_str());
  }
  if (mode.context != nullptr && mode.replicas != &internal::default_replicas())
    throw Error(ErrorCode::kFailedPrecondition,
                str("variable '", name(),
                    "' was made outside the strategy's scope() and is used inside a replica, where every "
                    "replica would change the one copy; make it inside scope()"));
  return 0;
}

at::Tensor Variable::value() const {
  const int replica = here();
  if (is_remote()) return state_->remote->read().requires_grad_(state_->components[0].requires_grad());
  if (replica < 0 && state_->is_on_read()) return state_->aggregate();
  return state_->seen(static_cast<std::size_t>(std::max(replica, 0)));
}

at::Tensor Variable::read_value() const { return value().clone(); }

Variable& Variable::assign(const at::Tensor& value) { return write(VariableWrite::kAssign, value, false); }
Variable& Variable::assign_add(const at::Tensor& value) { return write(VariableWrite::kAdd, value, false); }
Variable& Variable::assign_sub(const at::Tensor& value) { return write(VariableWrite::kSub, value, false); }
Variable& Variable::assign(double value) { return write(VariableWrite::kAssign, at::scalar_tensor(value, at::kDouble), true); }
Variable& Variable::assign_add(double value) { return write(VariableWrite::kAdd, at::scalar_tensor(value, at::kDouble), true); }
Variable& Variable::assign_sub(double value) { return write(VariableWrite::kSub, at::scalar_tensor(value, at::kDouble), true); }

Variable& Variable::assign(const Mirrored<at::Tensor>& value) {
  const c10::NoGradGuard no_grad;
  const int replica = here();
  if (replica >= 0) return assign(value[static_cast<std::size_t>(replica)]);
  if (is_remote()) return assign(value[0]);
  if (value.size() != size())
    throw Error(ErrorCode::kInvalidArgument, str("assign to variable '", name(), "' of ", size(), " components: the value has ",
                                                 value.size(), "; it must come from the same strategy"));
  for (const auto& component : value) require_shape(*state_, "assign", component);
  for (std::size_t i = 0; i < size(); ++i) state_->components[i].copy_(value[i]);
  return *this;
}

Variable& Variable::assign(const Variable& value) {
  if (here() < 0 && value.size() == size() && !value.state_->is_on_read() && !is_remote() && !value.is_remote())
    return assign(Mirrored<at::Tensor>(value.components()));
  return assign(value.value());
}

at::Tensor Variable::rows(const at::Tensor& ids) const {
  if (ids.dim() != 1 || !at::isIntegralType(ids.scalar_type(), /*includeBool=*/false) || sizes().empty())
    throw Error(ErrorCode::kInvalidArgument,
                lockstep::str("rows of variable '", name(), "' of shape ", sizes(), ": the ids have shape ", ids.sizes(),
                              " and dtype ", ids.scalar_type(), "; they must be a vector of whole numbers"));
  if (ids.numel() > 0 && (ids.min().item<std::int64_t>() < 0 || ids.max().item<std::int64_t>() >= sizes()[0]))
    throw Error(ErrorCode::kOutOfRange, str("rows of variable '", name(), "': an id is not in [0, ", sizes()[0], ")"));
  if (is_remote()) return state_->remote->read_rows(ids);
  return value().index_select(0, ids.to(value().device(), at::kLong));
}

Variable& Variable::write(VariableWrite how, const at::Tensor& given_value, bool is_literal) {
  const auto value = split::whole(given_value);
  const char* what = how == VariableWrite::kAssign ? "assign" : how == VariableWrite::kAdd ? "assign_add" : "assign_sub";
  const c10::NoGradGuard no_grad;
  if (!is_literal) require_shape(*state_, what, value);
  if (how != VariableWrite::kAssign && state_->components[0].scalar_type() == at::kBool)
    throw Error(ErrorCode::kInvalidArgument,
                str(what, " to variable '", name(), "', which is bool and has no arithmetic; use assign()"));
  const auto apply = [&](at::Tensor& component, const at::Tensor& given) {
    if (is_remote()) return state_->remote->write(how, given.detach().to(at::kCPU, component.scalar_type()).expand(sizes()));
    const auto operand = given.detach().to(component.options());
    if (how == VariableWrite::kAssign) component.copy_(operand);
    else if (how == VariableWrite::kAdd) component.add_(operand);
    else component.sub_(operand);
  };
  const auto apply_to_all = [&](const at::Tensor& given) {
    for (auto& component : state_->components) apply(component, given);
  };

  const int replica = here();
  ReplicaContext* context = internal::current_mode().context;
  const bool is_aggregated = !state_->is_on_read() && state_->aggregation != VariableAggregation::kNone;
  if (replica >= 0 && is_aggregated && context != nullptr && state_->replicas != nullptr) {
    Offer mine{state_.get(), what, &value, is_literal};
    state_->replicas->merge(*context, "a write to a variable", &mine,
                            [&](std::span<void* const> offers) { apply_to_all(combine(*state_, what, offers)); });
  } else if (replica >= 0 && is_remote() && context != nullptr && state_->replicas->size() > 1) {
    throw Error(ErrorCode::kInvalidArgument,
                str(what, " to variable '", name(), "', of which there is one for all ", state_->replicas->size(),
                    " replicas, inside a replica: it has aggregation NONE; give it SUM, MEAN or ONLY_FIRST_REPLICA"));
  } else if (replica >= 0) {
    apply(state_->components[is_remote() ? 0 : static_cast<std::size_t>(replica)], value);
  } else if (state_->is_on_read() && state_->aggregation == VariableAggregation::kNone) {
    state_->aggregate();  // throws: across replicas it has no value
  } else if (state_->is_on_read() && state_->aggregation == VariableAggregation::kSum) {
    if (how != VariableWrite::kAssign)
      throw Error(ErrorCode::kInvalidArgument, str(what, " across replicas on variable '", name(),
                                                   "', which is synchronised on read with SUM, would count the "
                                                   "value once per replica; use assign(), or write inside run()"));
    apply_to_all(part_of_sum(value, static_cast<std::size_t>(state_->replicas->global_size())));
  } else {
    apply_to_all(value);
  }
  return *this;
}

at::Tensor Variable::saved_value() const {
  if (is_remote()) return state_->remote->read();
  return state_->is_on_read() && state_->replicas != nullptr ? state_->aggregate() : state_->components[0].detach().clone();
}

void Variable::restore(const at::Tensor& value) {
  const c10::NoGradGuard no_grad;
  require_shape(*state_, "restore", value);
  if (is_remote()) return state_->remote->write(VariableWrite::kAssign, value.detach().to(at::kCPU, scalar_type()));
  const auto count = state_->replicas == nullptr ? 1 : state_->replicas->global_size();
  const bool is_divided = state_->is_on_read() && state_->aggregation == VariableAggregation::kSum && count > 1;
  const auto part = is_divided ? part_of_sum(value, static_cast<std::size_t>(count)) : value;
  // The first gets what the division of integers left over: a restored count is the saved one.
  const bool has_rest = is_divided && at::isIntegralType(value.scalar_type(), /*includeBool=*/false);
  const auto first = has_rest ? value.to(at::kLong) - part * (count - 1) : part;
  const bool has_first = state_->replicas == nullptr || state_->replicas->first_replica() == 0;
  for (std::size_t i = 0; i < size(); ++i) state_->components[i].copy_(i == 0 && has_first ? first : part);
}

}  // namespace lockstep

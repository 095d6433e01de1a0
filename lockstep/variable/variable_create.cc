#include <ATen/ATen.h>

#include <ostream>
#include <regex>

#include "lockstep/base/error.h"
#include "lockstep/base/str.h"
#include "lockstep/collective/dense.h"
#include "lockstep/collective/over_workers.h"
#include "lockstep/replica/mode.h"
#include "lockstep/replica/replica_context.h"
#include "lockstep/variable/no_variables.h"
#include "lockstep/variable/variable_state.h"

namespace lockstep {
namespace {

thread_local int t_default_scopes = 0;
thread_local const Variable* t_beside = nullptr;
thread_local const char* t_no_variables = nullptr;
thread_local int t_logical_device = 0;

void require_valid(const VariableOptions& options, const at::Tensor& initial) {
  if (options.synchronization == VariableSynchronization::kNone)
    throw Error(ErrorCode::kInvalidArgument, str("variable '", options.name,
                                                 "': synchronization NONE is not supported under a strategy; use ON_READ for "
                                                 "replica-local values, or ON_WRITE"));
  if (options.aggregation == VariableAggregation::kMean && !initial.is_floating_point() && !initial.is_complex())
    throw Error(ErrorCode::kInvalidArgument,
                lockstep::str("variable '", options.name, "' of dtype ", initial.scalar_type(),
                              ": aggregation MEAN needs a floating point dtype; use SUM or ONLY_FIRST_REPLICA"));
}

// A tensor without memory stands for the shape.
void make_remote(Variable::State& state, std::shared_ptr<RemoteVariable> remote, at::IntArrayRef sizes, at::ScalarType dtype) {
  state.remote = std::move(remote);
  const bool needs_gradient = state.trainable && (at::isFloatingType(dtype) || at::isComplexType(dtype));
  state.components = {at::empty(sizes, at::TensorOptions(dtype).device(at::kMeta)).requires_grad_(needs_gradient)};
}

// What its options say, without a value.
std::shared_ptr<Variable::State> make_empty(const std::shared_ptr<ReplicaSet>& replicas, const VariableOptions& options) {
  auto state = std::make_shared<Variable::State>();
  state->name = options.name.empty() ? "Variable" : options.name;
  state->replicas = replicas;
  state->synchronization =
      options.synchronization == VariableSynchronization::kAuto ? VariableSynchronization::kOnWrite : options.synchronization;
  state->aggregation = options.aggregation;
  state->trainable = options.trainable.value_or(!state->is_on_read());
  return state;
}

// How a variable begins: by its whole value, or part by part.
struct Beginning {
  std::function<at::Tensor()> whole;
  PartInitializer part = nullptr;
  std::vector<std::int64_t> shape = {};  // with `part`
  at::ScalarType dtype = at::kFloat;
};

at::Tensor part_of(const Beginning& beginning, const std::string& name, const std::vector<std::int64_t>& shape,
                   const std::vector<std::int64_t>& offset) {
  auto part = beginning.part(shape, offset);
  if (part.defined() && part.sizes() == at::IntArrayRef(shape) && part.scalar_type() == beginning.dtype)
    return part.detach().cpu().contiguous();
  throw Error(ErrorCode::kInvalidArgument,
              part.defined()
                  ? lockstep::str("variable '", name, "': the initializer gave ", part.scalar_type(), " of shape ",
                                  part.sizes(), " for a part of ", beginning.dtype, " of shape ", at::IntArrayRef(shape))
                  : str("variable '", name, "': the initializer gave an undefined tensor"));
}

std::shared_ptr<Variable::State> make_on_host(const std::shared_ptr<ReplicaSet>& replicas, const Beginning& beginning,
                                              const VariableOptions& options) {
  auto state = make_empty(replicas, options);
  RemoteDescription description{state->name, beginning.shape, beginning.dtype, state->trainable, state->aggregation};
  auto part = beginning.part;
  if (part != nullptr) {
    part = [&](const auto& shape, const auto& offset) { return part_of(beginning, state->name, shape, offset); };
  } else {
    const auto whole = beginning.whole();
    require_dense(whole, lockstep::str("variable '", options.name, "'").c_str());
    require_valid(options, whole);
    description.sizes = whole.sizes().vec();
    description.dtype = whole.scalar_type();
    part = [whole = whole.detach().cpu().contiguous()](const auto& shape, const auto& offset) {
      return shape.empty() ? whole : whole.narrow(0, offset[0], shape[0]);
    };
  }
  make_remote(*state, replicas->options().variable_host->create(description, part, t_beside), description.sizes,
              description.dtype);
  return state;
}

std::shared_ptr<Variable::State> make_state(const std::shared_ptr<ReplicaSet>& replicas, const Beginning& beginning,
                                            const VariableOptions& options) {
  if (replicas != nullptr && replicas->options().variable_host != nullptr) return make_on_host(replicas, beginning, options);
  const int logical_device = replicas == nullptr ? 0 : t_logical_device;
  const auto given = beginning.part == nullptr
                         ? beginning.whole()
                         : part_of(beginning, options.name, beginning.shape, std::vector<std::int64_t>(beginning.shape.size()));
  require_dense(given, lockstep::str("variable '", options.name, "'").c_str());
  if (replicas != nullptr) require_valid(options, given);
  // Worker 0's initial value is everybody's.
  const bool is_alone = replicas == nullptr || replicas->workers() == nullptr;
  const auto what = lockstep::str("the initial value of variable '", options.name, "'");
  const auto initial = is_alone ? given : value_of_first(*replicas->workers(), given, what.c_str());
  auto state = make_empty(replicas, options);
  state->logical_device = logical_device;
  const int count = replicas == nullptr ? 1 : replicas->size();
  for (int replica = 0; replica < count; ++replica) {
    const auto device = replicas == nullptr   ? initial.device()
                        : logical_device != 0 ? replicas->require_logical_device(replica, logical_device)->at(logical_device)
                                              : replicas->torch_device(replica);
    auto component = initial.detach().to(device, initial.scalar_type(), false, /*copy=*/true).contiguous();
    if (state->trainable && (component.is_floating_point() || component.is_complex())) component.requires_grad_();
    state->components.push_back(component);
  }
  return state;
}

struct Request {
  const VariableOptions* options;
  std::shared_ptr<Variable::State> made;
};

// All replicas ask for the variable; replica 0's request makes it for everybody.
std::shared_ptr<Variable::State> make_in_replica(ReplicaContext& context, const Beginning& beginning,
                                                 const VariableOptions& options) {
  Request mine{&options, nullptr};
  context.replicas().merge(context, "the creation of a variable", &mine, [&](std::span<void* const> all) {
    const auto wanted = internal::canonical_variable_name(options.name);
    for (std::size_t replica = 1; replica < all.size(); ++replica) {
      const auto& other = *static_cast<Request*>(all[replica])->options;
      if (internal::canonical_variable_name(other.name) != wanted)
        throw Error(ErrorCode::kFailedPrecondition,
                    str("replica ", replica, " makes a variable named '", other.name, "' where replica 0 makes '", options.name,
                        "'; all replicas must make the same variables in the same order"));
    }
    const auto state = make_state(context.replicas().shared_from_this(), beginning, options);
    for (void* record : all) static_cast<Request*>(record)->made = state;
  });
  return mine.made;
}

std::shared_ptr<Variable::State> make(const Beginning& beginning, const VariableOptions& options) {
  if (!beginning.whole && !beginning.part)
    throw Error(ErrorCode::kInvalidArgument,
                str("variable '", options.name, "': the initializer is empty; give a function that returns a tensor"));
  if (t_no_variables != nullptr)
    throw Error(ErrorCode::kInvalidArgument,
                str("variable '", options.name, "' is made in ", t_no_variables,
                    ", which is called again on every worker; make it before, in the strategy's scope()"));
  const auto mode = internal::current_mode();
  const auto replicas = internal::strategy_replicas(mode);
  if (replicas != nullptr && t_default_scopes > 0)
    throw Error(ErrorCode::kFailedPrecondition,
                str("variable '", options.name,
                    "' is made in a strategy's scope inside the default strategy's scope: mixing "
                    "different Strategy objects; leave the default strategy's scope first"));
  if (replicas != nullptr && mode.context != nullptr) return make_in_replica(*mode.context, beginning, options);
  return make_state(replicas, beginning, options);
}

}  // namespace

Variable::Variable(const at::Tensor& initial, const VariableOptions& options)
    : state_(make({[&] { return initial; }}, options)) {}

Variable::Variable(double initial, const VariableOptions& options)
    : state_(make({[&] { return at::scalar_tensor(initial, at::kFloat); }}, options)) {}

Variable::Variable(const std::function<at::Tensor()>& initializer, const VariableOptions& options)
    : state_(make({initializer}, options)) {}

Variable::Variable(const PartInitializer& initializer, const std::vector<std::int64_t>& shape, at::ScalarType dtype,
                   const VariableOptions& options)
    : state_(make({nullptr, initializer, shape, dtype}, options)) {}

std::ostream& operator<<(std::ostream& out, VariableSynchronization synchronization) {
  switch (synchronization) {
    case VariableSynchronization::kAuto: return out << "AUTO";
    case VariableSynchronization::kNone: return out << "NONE";
    case VariableSynchronization::kOnWrite: return out << "ON_WRITE";
    case VariableSynchronization::kOnRead: return out << "ON_READ";
  }
  return out;
}

std::ostream& operator<<(std::ostream& out, VariableAggregation aggregation) {
  switch (aggregation) {
    case VariableAggregation::kNone: return out << "NONE";
    case VariableAggregation::kSum: return out << "SUM";
    case VariableAggregation::kMean: return out << "MEAN";
    case VariableAggregation::kOnlyFirstReplica: return out << "ONLY_FIRST_REPLICA";
  }
  return out;
}

std::ostream& operator<<(std::ostream& out, const Variable& variable) {
  const char* kind = variable.is_remote()            ? "RemoteVariable"
                     : !variable.is_distributed()    ? "Variable"
                     : variable.state_->is_on_read() ? "SyncOnReadVariable"
                                                     : "MirroredVariable";
  out << kind << ":{\n";
  const auto names = variable.component_names();
  for (std::size_t i = 0; i < names.size(); ++i) {
    const auto& component = variable.components()[i];
    out << "  " << i << ": <'" << names[i] << "' shape=" << component.sizes() << " dtype=" << component.scalar_type() << ">"
        << (i + 1 < names.size() ? ",\n" : "\n");
  }
  return out << "}";
}

namespace internal {

Variable handle_of(std::shared_ptr<RemoteVariable> remote, const RemoteDescription& description,
                   std::shared_ptr<ReplicaSet> replicas) {
  auto state = std::make_shared<Variable::State>();
  state->name = description.name;
  state->replicas = std::move(replicas);
  state->trainable = description.is_trainable;
  state->aggregation = description.aggregation;
  make_remote(*state, std::move(remote), description.sizes, description.dtype);
  return Variable(std::move(state));
}

BesideGuard::BesideGuard(const Variable& variable) : variable_(variable), previous_(std::exchange(t_beside, &variable_)) {}
BesideGuard::~BesideGuard() { t_beside = previous_; }

LogicalDeviceGuard::LogicalDeviceGuard(int logical_device) : previous_(std::exchange(t_logical_device, logical_device)) {}
LogicalDeviceGuard::~LogicalDeviceGuard() { t_logical_device = previous_; }

NoVariables::NoVariables(const char* where) : previous_(std::exchange(t_no_variables, where)) {}
NoVariables::~NoVariables() { t_no_variables = previous_; }

DefaultScope::DefaultScope() { ++t_default_scopes; }
DefaultScope::~DefaultScope() { --t_default_scopes; }

std::string canonical_variable_name(const std::string& name) {
  if (name.empty()) return "Variable";
  static const std::regex suffix("_[0-9](?=/|$)");
  return std::regex_replace(name, suffix, "");
}

}  // namespace internal
}  // namespace lockstep

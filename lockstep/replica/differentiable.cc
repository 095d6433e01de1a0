#include "lockstep/replica/differentiable.h"

#include <ATen/ATen.h>
#include <torch/csrc/autograd/custom_function.h>

#include <algorithm>

#include "lockstep/base/error.h"
#include "lockstep/collective/dense.h"
#include "lockstep/collective/reduce_values.h"
#include "lockstep/collective/result_pool.h"
#include "lockstep/replica/mode.h"
#include "lockstep/replica/replica_context.h"

namespace lockstep::internal {
namespace {

using torch::autograd::AutogradContext;
using torch::autograd::variable_list;

std::vector<at::Tensor> all_reduce(Group& group, ReduceOp op, const std::vector<at::Tensor>& values) {
  std::vector<at::Tensor> outputs;
  outputs.reserve(values.size());
  for (const auto& value : values) outputs.push_back(empty_result_like(value));
  group.all_reduce(values, outputs);
  if (op == ReduceOp::kMean)
    for (auto& output : outputs) output = mean_of_sum(output, group.size());
  return outputs;
}

// The group of a backward(), which is a collective too: it must run where the forward did. The address is compared before
// it is used, since the strategy may be gone. On GPUs autograd has threads of its own, which know no replica.
Group& group_here(std::int64_t address, const at::Tensor& gradient) {
  auto* group = reinterpret_cast<Group*>(address);
  if (!gradient.is_cpu()) return *group;
  const auto mode = current_mode();
  const bool is_in_replica = mode.context != nullptr && mode.replicas != &default_replicas();
  if (!is_in_replica || &mode.replicas->group(mode.context->local_replica_id()) != group)
    throw Error(ErrorCode::kFailedPrecondition,
                "backward() of an all_reduce or all_gather was called outside the run() of its forward; every replica must "
                "call it, inside the function given to run()");
  return *group;
}

// The group and the operation travel as integers: a context stores only what autograd knows.
class AllReduce : public torch::autograd::Function<AllReduce> {
 public:
  static variable_list forward(AutogradContext* context, at::TensorList given, std::int64_t group, bool is_mean) {
    context->saved_data["group"] = group;
    context->saved_data["is_mean"] = is_mean;
    const at::AutoDispatchBelowADInplaceOrView below;
    variable_list values(given.begin(), given.end());
    for (auto& value : values) value = value.detach();
    return all_reduce(*reinterpret_cast<Group*>(group), is_mean ? ReduceOp::kMean : ReduceOp::kSum, values);
  }

  static variable_list backward(AutogradContext* context, variable_list gradients) {
    auto& group = group_here(context->saved_data["group"].toInt(), gradients[0]);
    const auto op = context->saved_data["is_mean"].toBool() ? ReduceOp::kMean : ReduceOp::kSum;
    for (auto& gradient : gradients) gradient = in_memory(gradient);
    auto reduced = all_reduce(group, op, gradients);
    reduced.resize(gradients.size() + 2);  // nothing for the group and the operation
    return reduced;
  }
};

class AllGather : public torch::autograd::Function<AllGather> {
 public:
  static at::Tensor forward(AutogradContext* context, const at::Tensor& value, std::int64_t group_address, std::int64_t axis) {
    auto& group = *reinterpret_cast<Group*>(group_address);
    const at::AutoDispatchBelowADInplaceOrView below;
    const auto values = group.all_gather(value.detach());
    auto all = concatenate_values(values, axis);
    std::int64_t begin = 0;
    for (int rank = 0; rank < group.rank(); ++rank) begin += values[static_cast<std::size_t>(rank)].size(axis);
    context->saved_data["group"] = group_address;
    context->saved_data["axis"] = axis;
    context->saved_data["begin"] = begin;
    context->saved_data["length"] = value.size(axis);
    return all;
  }

  static variable_list backward(AutogradContext* context, variable_list gradients) {
    auto& group = group_here(context->saved_data["group"].toInt(), gradients[0]);
    const auto sum = all_reduce(group, ReduceOp::kSum, {in_memory(gradients[0])})[0];
    return {sum.narrow(context->saved_data["axis"].toInt(), context->saved_data["begin"].toInt(),
                       context->saved_data["length"].toInt()),
            at::Tensor(), at::Tensor()};
  }
};

bool needs_gradient(const std::vector<at::Tensor>& values) {
  return at::GradMode::is_enabled() && std::ranges::any_of(values, [](const at::Tensor& v) { return v.requires_grad(); });
}

}  // namespace

std::vector<at::Tensor> differentiable_all_reduce(Group& group, ReduceOp op, const std::vector<at::Tensor>& values) {
  if (!needs_gradient(values)) return all_reduce(group, op, values);
  return AllReduce::apply(at::TensorList(values), reinterpret_cast<std::int64_t>(&group), op == ReduceOp::kMean);
}

at::Tensor differentiable_all_gather(Group& group, const at::Tensor& value, std::int64_t axis) {
  if (!needs_gradient({value})) return concatenate_values(group.all_gather(in_memory(value)), axis);
  return AllGather::apply(in_memory(value), reinterpret_cast<std::int64_t>(&group), axis);
}

}  // namespace lockstep::internal

#include "lockstep/train/loss.h"

#include <torch/csrc/autograd/functions/utils.h>
#include <torch/torch.h>

#include "lockstep/base/error.h"
#include "lockstep/base/str.h"
#include "lockstep/collective/dense.h"
#include "lockstep/replica/replica_context.h"

namespace lockstep {
namespace {

int replicas_here(const char* what) {
  if (const ReplicaContext* context = get_replica_context()) return context->num_replicas_in_sync();
  throw Error(ErrorCode::kFailedPrecondition,
              str(what, " was called in cross-replica context; call it inside the function given to run()"));
}

at::Tensor floating(const at::Tensor& loss) { return loss.is_floating_point() ? loss : loss.to(at::kDouble); }

// `scalar` / examples in every element of a tensor of these sizes. On the CPU without the dozen small steps that an
// operation on a tensor takes: it stands twice in every training step, and took 2.5 % of a small model's.
at::Tensor divided(const at::Tensor& scalar, std::int64_t examples, at::IntArrayRef sizes) {
  const auto fill = [&]<typename T>(T*) {
    auto result = at::empty(sizes, scalar.options().requires_grad(false));
    std::fill_n(result.data_ptr<T>(), result.numel(), *scalar.data_ptr<T>() / static_cast<T>(examples));
    return result;
  };
  if (scalar.is_cpu() && !scalar.requires_grad()) {
    if (scalar.scalar_type() == at::kFloat) return fill(static_cast<float*>(nullptr));
    if (scalar.scalar_type() == at::kDouble) return fill(static_cast<double*>(nullptr));
  }
  return (scalar / examples).expand(sizes);
}

struct AverageLossBackward final : torch::autograd::Node {
  std::vector<std::int64_t> sizes;
  std::int64_t examples = 1;

  std::string name() const override { return "AverageLossBackward"; }
  torch::autograd::variable_list apply(torch::autograd::variable_list&& gradients) override {
    return {gradients[0].defined() ? divided(gradients[0], examples, sizes) : at::Tensor()};
  }
};

// LibTorch holds nodes by std::shared_ptr, later ones by its own pointer.
template <typename Node, typename Pointer>
auto make_node() {
  if constexpr (std::is_same_v<Pointer, std::shared_ptr<torch::autograd::Node>>) return std::make_shared<Node>();
  else return c10::make_intrusive<Node>();
}

at::Tensor average(const at::Tensor& losses, std::int64_t examples) {
  at::Tensor result;
  {
    const c10::NoGradGuard no_grad;
    result = divided(losses.sum(), examples, {});
  }
  if (!losses.requires_grad() || !c10::GradMode::is_enabled()) return result;
  const auto node = make_node<AverageLossBackward, decltype(torch::autograd::Edge::function)>();
  node->sizes = losses.sizes().vec();
  node->examples = examples;
  node->set_next_edges(torch::autograd::collect_next_edges(losses));
  torch::autograd::set_history(result, node);
  return result;
}

}  // namespace

at::Tensor compute_average_loss(const at::Tensor& per_example_loss, std::optional<std::int64_t> global_batch_size) {
  require_dense(per_example_loss, "compute_average_loss");
  const int replicas = global_batch_size ? 1 : replicas_here("compute_average_loss without a global_batch_size");
  if (per_example_loss.dim() == 0)
    throw Error(ErrorCode::kInvalidArgument,
                "compute_average_loss: the loss is a scalar; it needs one value for each example (no reduction in the loss "
                "function), so that uneven batches can be weighed");
  if (global_batch_size && *global_batch_size < 0)
    throw Error(ErrorCode::kInvalidArgument,
                str("compute_average_loss: global_batch_size is ", *global_batch_size, "; it must not be negative"));
  const auto examples = global_batch_size.value_or(per_example_loss.size(0) * replicas);
  const auto losses = floating(per_example_loss);
  return examples == 0 ? losses.sum() * 0 : average(losses, examples);  // a global batch of no rows has no loss, not NaN
}

at::Tensor compute_average_loss(const at::Tensor& per_example_loss, const at::Tensor& sample_weight,
                                std::optional<std::int64_t> global_batch_size) {
  require_dense(per_example_loss, "compute_average_loss");
  require_dense(sample_weight, "compute_average_loss, sample_weight");
  auto weight = sample_weight;
  while (weight.dim() > 0 && weight.dim() < per_example_loss.dim()) weight = weight.unsqueeze(-1);
  const auto loss = floating(per_example_loss);
  bool fits = loss.dim() > 0 && weight.dim() <= loss.dim();
  for (std::int64_t d = 0; fits && d < weight.dim(); ++d) fits = weight.size(d) == 1 || weight.size(d) == loss.size(d);
  if (!fits)
    throw Error(ErrorCode::kInvalidArgument,
                lockstep::str("compute_average_loss: the weights have shape ", sample_weight.sizes(), ", the losses ",
                              loss.sizes(), "; give one weight for each example or for each element"));
  return compute_average_loss(loss * weight.to(loss.scalar_type()), global_batch_size);
}

at::Tensor scale_regularization_loss(const at::Tensor& regularization_loss) {
  require_dense(regularization_loss, "scale_regularization_loss");
  const int replicas = replicas_here("scale_regularization_loss");
  return floating(regularization_loss).sum() / replicas;
}

}  // namespace lockstep

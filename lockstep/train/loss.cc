#include "lockstep/train/loss.h"

#include <ATen/ATen.h>

#include "lockstep/base/error.h"
#include "lockstep/base/str.h"
#include "lockstep/replica/replica_context.h"

namespace lockstep {
namespace {

int replicas_here(const char* what) {
  if (const ReplicaContext* context = get_replica_context()) return context->num_replicas_in_sync();
  throw Error(ErrorCode::kFailedPrecondition,
              str(what, " was called in cross-replica context; call it inside the function given to run()"));
}

at::Tensor floating(const at::Tensor& loss) { return loss.is_floating_point() ? loss : loss.to(at::kDouble); }

}  // namespace

at::Tensor compute_average_loss(const at::Tensor& per_example_loss, std::optional<std::int64_t> global_batch_size) {
  const int replicas = global_batch_size ? 1 : replicas_here("compute_average_loss without a global_batch_size");
  if (per_example_loss.dim() == 0)
    throw Error(ErrorCode::kInvalidArgument,
                "compute_average_loss: the loss is a scalar; it needs one value for each example (no reduction in the loss "
                "function), so that uneven batches can be weighed");
  if (global_batch_size && *global_batch_size < 0)
    throw Error(ErrorCode::kInvalidArgument,
                str("compute_average_loss: global_batch_size is ", *global_batch_size, "; it must not be negative"));
  const auto examples = global_batch_size.value_or(per_example_loss.size(0) * replicas);
  const auto sum = floating(per_example_loss).sum();
  return examples == 0 ? sum * 0 : sum / examples;  // a global batch of no rows has no loss, not NaN
}

at::Tensor compute_average_loss(const at::Tensor& per_example_loss, const at::Tensor& sample_weight,
                                std::optional<std::int64_t> global_batch_size) {
  if (per_example_loss.dim() == 0 || sample_weight.dim() > per_example_loss.dim())
    throw Error(ErrorCode::kInvalidArgument,
                lockstep::str("compute_average_loss: the weights have shape ", sample_weight.sizes(), ", the losses ",
                              per_example_loss.sizes(), "; give one weight for each example or for each element"));
  auto weight = sample_weight;
  while (weight.dim() > 0 && weight.dim() < per_example_loss.dim()) weight = weight.unsqueeze(-1);
  const auto loss = floating(per_example_loss);
  bool fits = weight.dim() <= loss.dim();
  for (std::int64_t d = 0; fits && d < weight.dim(); ++d) fits = weight.size(d) == 1 || weight.size(d) == loss.size(d);
  if (!fits)
    throw Error(ErrorCode::kInvalidArgument,
                lockstep::str("compute_average_loss: the weights have shape ", sample_weight.sizes(), ", the losses ",
                              loss.sizes(), "; give one weight for each example or for each element"));
  return compute_average_loss(loss * weight.to(loss.scalar_type()), global_batch_size);
}

at::Tensor scale_regularization_loss(const at::Tensor& regularization_loss) {
  const int replicas = replicas_here("scale_regularization_loss");
  return floating(regularization_loss).sum() / replicas;
}

}  // namespace lockstep

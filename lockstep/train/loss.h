#pragma once

#include <cstdint>
#include <optional>

#include "lockstep/fwd.h"

namespace lockstep {

// The sum of the per-example losses divided by the global batch: summed over the replicas it is the mean over all
// examples, whatever part of the batch each replica has. Without `global_batch_size` only inside a replica or outside every
// strategy; in cross-replica context it is kFailedPrecondition then.
// `per_example_loss` has at least one dimension; its other dimensions are summed. Without `global_batch_size` every
// replica is assumed to have as many rows as this one. Integer losses become float64.
at::Tensor compute_average_loss(const at::Tensor& per_example_loss,
                                std::optional<std::int64_t> global_batch_size = std::nullopt);
// With a weight for every example (or for every element of the loss).
at::Tensor compute_average_loss(const at::Tensor& per_example_loss, const at::Tensor& sample_weight,
                                std::optional<std::int64_t> global_batch_size = std::nullopt);

// The sum of a regularisation loss divided by the number of replicas, so that their sum counts it once.
at::Tensor scale_regularization_loss(const at::Tensor& regularization_loss);

}  // namespace lockstep

#include "lockstep/train/model/compile_options.h"

#include "lockstep/base/error.h"
#include "lockstep/base/str.h"
#include "lockstep/replica/replica_set.h"
#include "lockstep/train/model/step_runner.h"

namespace lockstep::internal {

void require_complete(const CompileOptions& options, const ModuleReplicas& model) {
  const auto losses = options.loss.list().size();
  if (options.steps_per_update < 1)
    throw Error(ErrorCode::kInvalidArgument,
                str("compile: steps_per_update is ", options.steps_per_update, "; it counts batches, from 1 on"));
  if (const auto steps = options.optimizer.rules().gradient_accumulation_steps; steps && options.steps_per_update > 1)
    throw Error(ErrorCode::kInvalidArgument, str("compile: steps_per_update is ", options.steps_per_update,
                                                 ", and the optimizer's gradient_accumulation_steps ", *steps,
                                                 "; both say how many batches are one update: give one of them"));
  if (!options.loss_weights.empty() && options.loss_weights.size() != losses)
    throw Error(ErrorCode::kInvalidArgument, str("compile: there are ", options.loss_weights.size(), " loss_weights and ",
                                                 losses, " losses; give one weight for each loss, or none"));
  if (options.output_metrics.size() > losses)
    throw Error(ErrorCode::kInvalidArgument, str("compile: output_metrics are for ", options.output_metrics.size(),
                                                 " outputs, and there are ", losses, " losses; give one loss for each output"));
  const bool has_cpu = model.replicas() == nullptr || model.replicas()->torch_device(0).is_cpu();
  if (options.precision == Precision::kFloat16 && has_cpu)
    throw Error(ErrorCode::kUnimplemented,
                "compile: precision kFloat16 is for GPUs, and the replicas are on CPUs; use kBFloat16, or kFloat32");
}

}  // namespace lockstep::internal

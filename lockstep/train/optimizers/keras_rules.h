#pragma once

#include <memory>
#include <vector>

#include "lockstep/fwd.h"
#include "lockstep/train/optimizers/optimizers.h"

// The optimizers that LibTorch lacks, and one that it has otherwise, by Keras's formulas. Their options are checked by who
// calls.

namespace lockstep {

using MadeOptimizer = std::unique_ptr<torch::optim::Optimizer>;

MadeOptimizer make_adagrad(std::vector<at::Tensor> parameters, double learning_rate, const AdagradOptions& options);
MadeOptimizer make_adadelta(std::vector<at::Tensor> parameters, double learning_rate, const AdadeltaOptions& options);
MadeOptimizer make_adamax(std::vector<at::Tensor> parameters, double learning_rate, const AdamaxOptions& options);
MadeOptimizer make_nadam(std::vector<at::Tensor> parameters, double learning_rate, const NadamOptions& options);
MadeOptimizer make_ftrl(std::vector<at::Tensor> parameters, double learning_rate, const FtrlOptions& options);
MadeOptimizer make_lion(std::vector<at::Tensor> parameters, double learning_rate, const LionOptions& options);

}  // namespace lockstep

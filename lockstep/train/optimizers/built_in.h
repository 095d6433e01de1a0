#pragma once

#include "lockstep/train/optimizers/keras_rules.h"

namespace lockstep {

// How one of optimizers.h is made: what its OptimizerSpec can be asked for again, to write it as text.
template <typename Options>
struct BuiltIn {
  MadeOptimizer (*make)(std::vector<at::Tensor> parameters, double learning_rate, const Options& options);
  Options options;

  MadeOptimizer operator()(std::vector<at::Tensor> parameters, double learning_rate) const {
    return make(std::move(parameters), learning_rate, options);
  }
};

}  // namespace lockstep

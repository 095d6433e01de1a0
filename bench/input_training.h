#pragma once

#include <cstdint>
#include <memory>

#include "lockstep/data/dataset.h"

namespace bench {

// Trains W2, the small CNN, with MirroredStrategy over two logical CPUs, on what a dataset of (image, label) batches gives.
class InputTraining {
 public:
  explicit InputTraining(const lockstep::data::Dataset& batches);
  ~InputTraining();

  // One step: how many examples it had; 0 at the end of a pass, after which a new one has begun.
  std::int64_t step();

 private:
  struct State;
  std::unique_ptr<State> state_;
};

}  // namespace bench

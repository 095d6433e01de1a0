#pragma once

#include <ATen/core/Tensor.h>

namespace lockstep::data::internal {

// Memory for a batch, to be written on the CPU.
//
// Note [batch memory]
// 1. A GPU reads page-locked memory without the processor. So where batches go to one, they are made in such memory from the
//    beginning (PinnedBatches), and need not be copied there before their transfer.
// 2. It holds for the thread that feeds devices and for threads that it starts, for batch(), sources and ExampleParser. What a
//    function of the pipeline makes is copied later.
at::Tensor new_batch(at::IntArrayRef sizes, const at::TensorOptions& options);

// While it lives, new_batch() of this thread gives page-locked memory, or ordinary memory.
class PinnedBatches {
 public:
  explicit PinnedBatches(bool are_pinned);
  ~PinnedBatches();
  PinnedBatches(const PinnedBatches&) = delete;
  PinnedBatches& operator=(const PinnedBatches&) = delete;

  // Of this thread, for one that it starts.
  static bool are_wanted() noexcept;

 private:
  const bool before_;
};

}  // namespace lockstep::data::internal

#include "lockstep/data/batch_memory.h"

#include <ATen/ATen.h>

namespace lockstep::data::internal {
namespace {

thread_local bool are_pinned_here = false;

}  // namespace

at::Tensor new_batch(at::IntArrayRef sizes, const at::TensorOptions& options) {
  return at::empty(sizes, are_pinned_here ? options.pinned_memory(true) : options);
}

PinnedBatches::PinnedBatches(bool are_pinned) : before_(are_pinned_here) { are_pinned_here = are_pinned; }

PinnedBatches::~PinnedBatches() { are_pinned_here = before_; }

bool PinnedBatches::are_wanted() noexcept { return are_pinned_here; }

}  // namespace lockstep::data::internal

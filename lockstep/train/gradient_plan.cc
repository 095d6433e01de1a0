#include <ATen/ATen.h>

#include "lockstep/base/error.h"
#include "lockstep/base/log.h"
#include "lockstep/base/str.h"
#include "lockstep/train/gradient_state.h"

namespace lockstep {
namespace {

// Whether a gradient of this parameter is summed where LibTorch put it. Its gradients then have the parameter's strides.
bool can_be_direct(const at::Tensor& parameter) {
  return parameter.is_cpu() && static_cast<std::int64_t>(parameter.nbytes()) >= kSummedInPlaceBytes &&
         parameter.is_non_overlapping_and_dense();
}

// Shares the buffer's memory without being a recorded view, which optimizers could not zero. Dense strides keep a
// channels_last parameter's gradient in its own order.
at::Tensor gradient_in(const at::Tensor& buffer, std::int64_t offset, const at::Tensor& parameter) {
  const auto strides =
      parameter.is_non_overlapping_and_dense() ? parameter.strides().vec() : parameter.contiguous().strides().vec();
  return at::empty({0}, buffer.options()).set_(buffer.storage(), offset, parameter.sizes(), strides);
}

}  // namespace

// Sums go element by element through memory, so all copies of a parameter must be laid out alike.
void GradientReducer::State::require_equal_copies() const {
  const auto describe = [](const at::Tensor& p) {
    return lockstep::str(p.sizes(), " ", p.scalar_type(), " with strides ", p.strides());
  };
  for (std::size_t i = 0; i < names.size(); ++i) {
    const auto& first = replicas[0].slots[i].parameter;
    for (std::size_t r = 1; r < replicas.size(); ++r) {
      const auto& other = replicas[r].slots[i].parameter;
      if (other.sizes() == first.sizes() && other.scalar_type() == first.scalar_type() && other.strides() == first.strides())
        continue;
      throw Error(ErrorCode::kInvalidArgument,
                  lockstep::str("parameter '", names[i], "' of ", model->name(), " is ", describe(first), " in replica 0 and ",
                                describe(other), " in replica ", r,
                                "; change a model in every replica, inside run(), or before mirrored()"));
    }
  }
}

void GradientReducer::State::plan() {
  require_equal_copies();
  std::vector<GradientInfo> infos;
  std::vector<std::size_t> planned;
  for (std::size_t i = 0; i < names.size(); ++i) {
    const Slot& slot = replicas[0].slots[i];
    if (!slot.is_planned() && kind_of_all(i) != GradientKind::kDense) continue;
    const auto& p = slot.parameter;
    infos.push_back(
        {static_cast<int>(p.scalar_type()), 0, p.numel(), static_cast<std::int64_t>(p.element_size()), can_be_direct(p)});
    planned.push_back(i);
  }
  buckets = plan_buckets(infos, options.bucket_bytes);
  std::vector<std::vector<at::Tensor>> buffers(buckets.size());
  for (std::size_t b = 0; b < buckets.size(); ++b) {
    const auto& members = buckets[b].members;
    const bool is_direct = infos[members[0].gradient].is_alone;
    for (auto& replica : replicas) {
      const auto& first = replica.slots[planned[members[0].gradient]].parameter;
      buffers[b].push_back(is_direct ? at::Tensor() : at::zeros({buckets[b].elements}, first.options().requires_grad(false)));
      for (const auto& member : members) {
        Slot& slot = replica.slots[planned[member.gradient]];
        slot.bucket = b;
        slot.gradient = is_direct ? at::Tensor() : gradient_in(buffers[b].back(), member.offset, slot.parameter);
      }
    }
  }
  for (auto& replica : replicas) {
    replica.missing.clear();
    for (const auto& bucket : buckets) replica.missing.push_back(static_cast<int>(bucket.members.size()));
    // A step in which a gradient came twice cannot begin its sums early.
    for (const auto& slot : replica.slots) can_overlap = can_overlap && slot.fired <= 1;
  }
  const auto size = static_cast<int>(replicas.size());
  exchange = std::make_unique<BucketExchange>(std::move(buffers), size, options.reduce == ReduceOp::kMean ? size : 1);
  report_unused();
}

void GradientReducer::State::report_unused() {
  const auto names_of_unused = unused();
  if (names_of_unused.empty() || has_reported_unused) return;
  has_reported_unused = true;
  log_warning(str("parameters of ", model->name(), " that the loss does not depend on, in any replica: ",
                  join(", ", names_of_unused), "; they are not changed"));
}

}  // namespace lockstep

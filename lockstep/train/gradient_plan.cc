#include <ATen/ATen.h>

#include "lockstep/base/error.h"
#include "lockstep/base/log.h"
#include "lockstep/base/str.h"
#include "lockstep/replica/replica_set.h"
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

GradientReducer::State::Buffers GradientReducer::State::local_buffers(const std::vector<bool>& is_direct,
                                                                      const std::vector<std::size_t>& first) const {
  Buffers made;
  for (std::size_t b = 0; b < buckets.size(); ++b) {
    auto& of_bucket = made.mine.emplace_back();
    for (const auto& replica : replicas) {
      const auto like = replica.slots[first[b]].parameter.options().requires_grad(false);
      of_bucket.push_back(is_direct[b] ? at::Tensor() : at::zeros({buckets[b].elements}, like));
    }
  }
  const auto size = static_cast<int>(replicas.size());
  made.exchange = std::make_unique<BucketExchange>(made.mine, size, options.reduce == ReduceOp::kMean ? size : 1);
  return made;
}

void GradientReducer::State::plan() {
  if (model->replicas() != nullptr && model->replicas()->recording() != nullptr)
    throw Error(ErrorCode::kFailedPrecondition, "gradient buckets are planned anew, which cannot be recorded");
  ++plans;
  require_equal_copies();
  std::vector<GradientInfo> infos;
  std::vector<std::size_t> planned;
  for (std::size_t i = 0; i < names.size(); ++i) {
    const Slot& slot = replicas[0].slots[i];
    if (!slot.is_planned() && (kind_of_all(i) != GradientKind::kDense || !can_be_planned(slot.parameter))) continue;
    const auto& p = slot.parameter;
    infos.push_back(
        {static_cast<int>(p.scalar_type()), 0, p.numel(), static_cast<std::int64_t>(p.element_size()), can_be_direct(p)});
    planned.push_back(i);
  }
  buckets = plan_buckets(infos, options.bucket_bytes);
  std::vector<bool> is_direct;
  std::vector<std::size_t> first;  // by bucket: its first parameter, which the others are like
  for (const auto& bucket : buckets) {
    const auto gradient = bucket.members[0].gradient;
    is_direct.push_back(infos[gradient].is_alone && workers() == nullptr);
    first.push_back(planned[gradient]);
  }
  auto made = workers() == nullptr ? local_buffers(is_direct, first) : shared_buffers(first);
  for (std::size_t b = 0; b < buckets.size(); ++b)
    for (std::size_t r = 0; r < replicas.size(); ++r)
      for (const auto& member : buckets[b].members) {
        Slot& slot = replicas[r].slots[planned[member.gradient]];
        slot.bucket = b;
        slot.gradient = is_direct[b] ? at::Tensor() : gradient_in(made.mine[b][r], member.offset, slot.parameter);
      }
  for (auto& replica : replicas) {
    replica.missing.clear();
    for (const auto& bucket : buckets) replica.missing.push_back(static_cast<int>(bucket.members.size()));
    // A step in which a gradient came twice cannot begin its sums early.
    for (const auto& slot : replica.slots) can_overlap = can_overlap && slot.fired <= 1;
  }
  can_overlap = can_overlap && !has_come_twice;
  exchange = std::move(made.exchange);
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

#include <ATen/ATen.h>
#include <c10/core/GradMode.h>

#include <cstring>

#include "lockstep/base/error.h"
#include "lockstep/base/str.h"
#include "lockstep/train/gradient_state.h"
#include "lockstep/variable/gradient_hooks.h"

namespace lockstep {
namespace {

// copy_() costs more than the copy itself for a small gradient.
void copy_into(const at::Tensor& slot, const at::Tensor& gradient) {
  if (slot.is_cpu() && gradient.is_cpu() && gradient.layout() == at::kStrided && gradient.strides() == slot.strides() &&
      gradient.sizes() == slot.sizes() && gradient.scalar_type() == slot.scalar_type() && !gradient.is_conj() &&
      !gradient.is_neg())
    std::memcpy(slot.data_ptr(), gradient.data_ptr(), slot.nbytes());
  else slot.copy_(gradient.layout() == at::kSparse ? gradient.to_dense() : gradient);
}

// A dense copy in the parameter's memory order, without a graph.
at::Tensor copy_like(const at::Tensor& gradient, const at::Tensor& parameter) {
  auto copy = at::empty_like(parameter);
  copy_into(copy, gradient);
  return copy;
}

}  // namespace

void GradientReducer::State::before(std::size_t replica) {
  const auto wrong = drop_stale(replica);
  if (!wrong) return;
  throw Error(
      ErrorCode::kFailedPrecondition,
      str("parameter '", names[*wrong], "' of ", model->name(),
          " got other memory (torch::load) after a step, and its new gradient was added to the last step's; train inside "
          "run(), where that is noticed in time, or call zero_grad() after loading"));
}

std::optional<std::size_t> GradientReducer::State::drop_stale(std::size_t replica) {
  std::optional<std::size_t> wrong;
  Replica& mine = replicas[replica];
  if (!mine.has_stale) return wrong;
  for (std::size_t i = 0; i < mine.slots.size(); ++i) {
    auto& slot = mine.slots[i];
    if (slot.stale.defined() && slot.parameter.grad().is_same(slot.stale)) {
      const bool is_written = internal::version_of(slot.stale) != slot.stale_version;
      if (is_written && slot.has_lost_hooks()) wrong = i;
      if (!is_written || slot.has_lost_hooks()) slot.parameter.mutable_grad().reset();
    }
    slot.stale.reset();
  }
  mine.has_stale = false;
  return wrong;
}

void GradientReducer::State::after(std::size_t replica, std::size_t index, const at::Tensor& incoming) {
  if (!incoming.defined()) return;  // a function may give no gradient at all: then none has come
  Replica& mine = replicas[replica];
  Slot& slot = mine.slots[index];
  if (slot.is_planned() && exchange->is_published(replica, slot.bucket))
    throw Error(ErrorCode::kFailedPrecondition,
                str("the gradient of parameter '", names[index],
                    "' came twice in one step, after its sum over the replicas had "
                    "begun; call every backward() of a step but the last under optimizer.no_sync(), or set "
                    "GradientOptions::overlap to false"));
  slot.has_gradient = true;
  slot.was_reached = true;
  if (slot.is_planned()) settle(slot, incoming);
  if (mine.no_sync > 0) return;
  ++slot.fired;
  if (!slot.is_planned() || slot.fired > 1) return;
  if (--mine.missing[slot.bucket] == 0 && can_overlap) publish(replica, slot);
}

// Makes the parameter's gradient one that can be summed: in the bucket, or alone in memory of its own.
void GradientReducer::State::settle(Slot& slot, const at::Tensor& incoming) {
  auto& gradient = slot.parameter.mutable_grad();
  if (!gradient.defined()) return;
  const c10::NoGradGuard no_grad;
  if (slot.is_direct()) {
    const bool is_usable = gradient.layout() == at::kStrided && gradient.strides() == slot.parameter.strides() &&
                           !gradient.requires_grad() && !gradient.is_conj() && !gradient.is_neg() &&
                           internal::owns_memory(gradient, incoming);
    if (!is_usable) gradient = copy_like(gradient, slot.parameter);
    return;
  }
  if (gradient.unsafeGetTensorImpl() == slot.gradient.unsafeGetTensorImpl()) return;
  if (gradient.layout() == at::kStrided && gradient.data_ptr() == slot.gradient.data_ptr()) return;
  copy_into(slot.gradient, gradient);
  gradient = slot.gradient;
}

void GradientReducer::State::publish(std::size_t replica, const Slot& slot) {
  if (slot.is_direct()) exchange->publish(replica, slot.bucket, slot.parameter.grad());
  else exchange->publish(replica, slot.bucket);
}

// Every planned gradient is where it can be summed; the buckets that were not full are published.
void GradientReducer::State::complete(std::size_t replica) {
  Replica& mine = replicas[replica];
  for (std::size_t i = 0; i < mine.slots.size(); ++i) {
    const Slot& slot = mine.slots[i];
    const auto& gradient = slot.parameter.grad();
    mine.kinds[i] = !slot.has_gradient || !gradient.defined() ? GradientKind::kNone
                    : gradient.layout() == at::kSparse        ? GradientKind::kSparse
                                                              : GradientKind::kDense;
  }
  if (exchange) fill_slots(replica);
}

void GradientReducer::State::fill_slots(std::size_t replica) {
  Replica& mine = replicas[replica];
  const c10::NoGradGuard no_grad;
  for (auto& slot : mine.slots) {
    if (!slot.is_planned() || exchange->is_published(replica, slot.bucket)) continue;
    if (slot.has_gradient && slot.parameter.grad().defined()) {
      settle(slot, {});
    } else {
      slot.parameter.mutable_grad() = slot.is_direct() ? at::zeros_like(slot.parameter) : slot.gradient.zero_();
    }
  }
  for (const auto& slot : mine.slots)
    if (slot.is_planned() && !exchange->is_published(replica, slot.bucket)) publish(replica, slot);
}

}  // namespace lockstep

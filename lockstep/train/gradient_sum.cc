#include <ATen/ATen.h>
#include <c10/core/GradMode.h>

#include <utility>

#include "lockstep/base/trace.h"
#include "lockstep/collective/indexed_slices.h"
#include "lockstep/train/gradient_state.h"

namespace lockstep {
namespace {

IndexedSlices no_rows(const at::Tensor& parameter) {
  auto sizes = parameter.sizes().vec();
  sizes[0] = 0;
  return {at::empty(sizes, parameter.options().requires_grad(false)),
          at::empty({0}, parameter.options().dtype(at::kLong).requires_grad(false)), parameter.sizes().vec()};
}

}  // namespace

GradientKind GradientReducer::State::kind_of_all(std::size_t index) const {
  return workers() == nullptr ? kind_here(index) : agreed_kinds[index];
}

GradientKind GradientReducer::State::kind_here(std::size_t index) const {
  GradientKind kind = GradientKind::kNone;
  for (const auto& replica : replicas) {
    if (replica.kinds[index] == GradientKind::kDense) return GradientKind::kDense;
    if (replica.kinds[index] == GradientKind::kSparse) kind = GradientKind::kSparse;
  }
  return kind;
}

bool GradientReducer::State::has_new_gradient() const {
  for (std::size_t i = 0; i < names.size(); ++i)
    if (!replicas[0].slots[i].is_planned() && can_be_planned(replicas[0].slots[i].parameter) &&
        kind_of_all(i) == GradientKind::kDense)
      return true;
  return false;
}

void GradientReducer::State::reduce_unplanned(std::size_t replica, Group& group) {
  for (std::size_t i = 0; i < names.size(); ++i) {
    if (replicas[replica].slots[i].is_planned()) continue;
    const GradientKind kind = kind_of_all(i);
    if (kind == GradientKind::kNone) continue;
    const trace::Span span("sum gradient", trace::Category::kSync, {"parameter", static_cast<std::int64_t>(i)});
    if (kind == GradientKind::kDense) reduce_dense(replica, i, group);
    else reduce_sparse(replica, i, group);
  }
}

// A gradient that came for the first time after the plan was made, in the step in which it came. It is summed in a copy:
// its own memory may be another gradient's too.
void GradientReducer::State::reduce_dense(std::size_t replica, std::size_t index, Group& group) {
  Slot& slot = replicas[replica].slots[index];
  const c10::NoGradGuard no_grad;
  const GradientKind kind = replicas[replica].kinds[index];
  auto gradient = kind == GradientKind::kNone ? at::zeros(slot.parameter.sizes(), slot.parameter.options().requires_grad(false))
                  : kind == GradientKind::kSparse ? slot.parameter.grad().to_dense()
                                                  : slot.parameter.grad().detach().clone(at::MemoryFormat::Contiguous);
  group.all_reduce({&gradient, 1}, {&gradient, 1});
  if (options.reduce == ReduceOp::kMean) gradient.div_(static_cast<double>(group.size()));
  slot.parameter.mutable_grad() = gradient;
}

// The rows of all replicas one after the other: the optimizer adds repeated rows up.
void GradientReducer::State::reduce_sparse(std::size_t replica, std::size_t index, Group& group) {
  const auto& p = replicas[replica].slots[index].parameter;
  const c10::NoGradGuard no_grad;
  const auto rows_of = [&](std::size_t r) {
    return replicas[r].kinds[index] == GradientKind::kSparse ? from_sparse_tensor(replicas[r].slots[index].parameter.grad())
                                                             : no_rows(p);
  };
  std::vector<IndexedSlices> parts;
  if (p.is_cpu() && workers() == nullptr) {
    // Read where they are: nobody changes a gradient between the two meetings.
    for (std::size_t r = 0; r < replicas.size(); ++r) parts.push_back(rows_of(r));
  } else {
    const IndexedSlices mine = rows_of(replica);
    const auto values = group.all_gather(mine.values.contiguous());
    const auto indices = group.all_gather(mine.indices.contiguous());
    for (std::size_t r = 0; r < values.size(); ++r) parts.push_back({values[r], indices[r], p.sizes().vec()});
  }
  auto all = concatenate(parts);
  if (options.reduce == ReduceOp::kMean) all.values.div_(static_cast<double>(group.size()));
  prefetch_rows(p, all.indices);
  // A GPU adds repeated rows of a sparse tensor in any order; coalesced, each row stands once and copies stay equal.
  auto sparse = to_sparse_tensor(all);
  replicas[replica].slots[index].sparse_sum = p.is_cpu() ? sparse : sparse.coalesce();
}

void GradientReducer::State::take_sparse_sums(std::size_t replica) {
  for (auto& slot : replicas[replica].slots)
    if (slot.sparse_sum.defined()) slot.parameter.mutable_grad() = std::exchange(slot.sparse_sum, {});
}

}  // namespace lockstep

#include "lockstep/split/gradients.h"

#include <ATen/ATen.h>
#include <c10/core/GradMode.h>
#include <torch/csrc/autograd/function.h>
#include <torch/csrc/autograd/variable.h>

#include <algorithm>
#include <type_traits>

#include "lockstep/base/error.h"
#include "lockstep/base/str.h"

namespace lockstep::split {
namespace {

// Cuts the gradient of the front as the value is cut.
class CutGradient final : public torch::autograd::Node {
 public:
  CutGradient(torch::autograd::edge_list edges, const SplitValue& value)
      : Node(std::move(edges)), home_(value.home), tiling_(value.tiling), devices_(value.devices) {}

 private:
  torch::autograd::variable_list apply(torch::autograd::variable_list&& gradients) override {
    if (!gradients[0].defined()) return torch::autograd::variable_list(num_outputs());
    // Of copies the first has it all.
    if (num_outputs() == 1) return {moved(whole(gradients[0]), home_->at(devices_[0]))};
    return cut(whole(gradients[0]), tiling_, *home_, devices_);
  }

  const Home home_;
  const Tiling tiling_;
  const std::vector<int> devices_;
};

// Older versions of LibTorch share nodes by a std::shared_ptr, newer ones by a pointer of their own.
using NodePointer = decltype(torch::autograd::Edge::function);

template <typename Pointer>
Pointer make_node(torch::autograd::edge_list edges, const SplitValue& value) {
  if constexpr (std::is_constructible_v<Pointer, CutGradient*>) {
    return Pointer(new CutGradient(std::move(edges), value));
  } else {
    using Kind = std::conditional_t<std::is_void_v<Pointer>, void, CutGradient>;  // looked at only where it is used
    return c10::make_intrusive<Kind>(std::move(edges), value);
  }
}

}  // namespace

void require_own_gradients(const at::Tensor& front, const std::string& what) {
  if (!front.requires_grad()) return;
  if (!front.is_leaf() && dynamic_cast<const CutGradient*>(front.grad_fn().get()) != nullptr) return;
  throw Error(ErrorCode::kUnimplemented,
              str(what,
                  ": the split tensor was given a gradient of its own (by requires_grad_(), or by a "
                  "torch::autograd::Function), which would be lost; mark the tensor that is annotated, or use "
                  "without_annotation()"));
}

void connect(const at::Tensor& front, const SplitValue& value) {
  if (std::ranges::none_of(value.parts, [](const at::Tensor& part) { return part.requires_grad(); })) {
    if (auto* const meta = torch::autograd::impl::get_autograd_meta(front)) {
      meta->grad_fn_ = nullptr;
      meta->requires_grad_ = false;
    }
    return;
  }
  if (!c10::GradMode::is_enabled()) return;
  torch::autograd::edge_list edges;
  for (const auto& part : value.parts) {
    edges.push_back(part.requires_grad() ? torch::autograd::impl::gradient_edge(part) : torch::autograd::Edge());
    if (value.is_replicated) break;
  }
  const auto node = make_node<NodePointer>(std::move(edges), value);
  const auto input = node->add_input_metadata(front);
  torch::autograd::impl::set_gradient_edge(front, {node, input});
}

}  // namespace lockstep::split

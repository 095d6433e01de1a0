#include "lockstep/split/gradients.h"

#include <ATen/ATen.h>
#include <torch/csrc/autograd/function.h>
#include <torch/csrc/autograd/variable.h>

#include <algorithm>

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
    if (num_outputs() == 1) return {whole(gradients[0])};
    return cut(whole(gradients[0]), tiling_, *home_, devices_);
  }

  const Home home_;
  const Tiling tiling_;
  const std::vector<int> devices_;
};

}  // namespace

void connect(const at::Tensor& front, const SplitValue& value) {
  if (!at::GradMode::is_enabled()) return;
  if (std::ranges::none_of(value.parts, [](const at::Tensor& part) { return part.requires_grad(); })) return;
  torch::autograd::edge_list edges;
  for (const auto& part : value.parts) {
    edges.push_back(part.requires_grad() ? torch::autograd::impl::gradient_edge(part) : torch::autograd::Edge());
    if (value.is_replicated) break;
  }
  const std::shared_ptr<torch::autograd::Node> node(new CutGradient(std::move(edges), value), torch::autograd::deleteNode);
  const auto input = node->add_input_metadata(front);
  torch::autograd::impl::set_gradient_edge(front, {node, input});
}

}  // namespace lockstep::split

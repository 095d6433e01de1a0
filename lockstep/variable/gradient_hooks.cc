#include "lockstep/variable/gradient_hooks.h"

#include <torch/csrc/autograd/function_hook.h>
#include <torch/torch.h>

namespace lockstep::internal {
namespace {

// LibTorch keeps hooks as long as the accumulator; ours look up whether their owner is still there.
template <typename Hook>
struct Token {
  explicit Token(Hook f) : hook(std::move(f)) {}
  Hook hook;
  std::shared_ptr<void> accumulator;
};

using ReadyToken = Token<std::function<void(const at::Tensor&)>>;
using BeforeToken = Token<std::function<void()>>;

class PostHook : public torch::autograd::FunctionPostHook {
 public:
  explicit PostHook(std::weak_ptr<ReadyToken> token) : token_(std::move(token)) {}
  torch::autograd::variable_list operator()(const torch::autograd::variable_list& outputs,
                                            const torch::autograd::variable_list& incoming) override {
    if (const auto token = token_.lock()) token->hook(incoming[0]);
    return outputs;
  }

 private:
  std::weak_ptr<ReadyToken> token_;
};

class PreHook : public torch::autograd::FunctionPreHook {
 public:
  explicit PreHook(std::weak_ptr<BeforeToken> token) : token_(std::move(token)) {}
  torch::autograd::variable_list operator()(const torch::autograd::variable_list& gradients) override {
    if (const auto token = token_.lock()) token->hook();
    return gradients;
  }

 private:
  std::weak_ptr<BeforeToken> token_;
};

// The tensor holds its accumulator by a weak pointer only; whose type differs between LibTorch versions.
template <typename Accumulator>
std::shared_ptr<void> keep(Accumulator accumulator) {
  return std::make_shared<Accumulator>(std::move(accumulator));
}

const at::Tensor* base_of(const at::Tensor& view) {
  const auto* meta = torch::autograd::impl::get_view_autograd_meta(view);
  if (meta == nullptr) return nullptr;
  if (meta->has_bw_view()) return &meta->get_backward_view().base_;
  return meta->has_fw_view() ? &meta->get_forward_view().base_ : nullptr;
}

// How many references to `base` the view keeps.
std::size_t holds(const at::Tensor& view, const at::Tensor& base) {
  const auto* meta = torch::autograd::impl::get_view_autograd_meta(view);
  if (meta == nullptr) return 0;
  std::size_t count = 0;
  if (meta->has_bw_view() && meta->get_backward_view().base_.is_same(base)) ++count;
  if (meta->has_fw_view() && !meta->shared_view_info() && meta->get_forward_view().base_.is_same(base)) ++count;
  return count;
}

}  // namespace

std::shared_ptr<void> on_gradient_ready(const at::Tensor& parameter, std::function<void(const at::Tensor&)> hook) {
  auto token = std::make_shared<ReadyToken>(std::move(hook));
  auto accumulator = torch::autograd::impl::grad_accumulator(parameter);
  accumulator->add_post_hook(std::make_unique<PostHook>(token));
  token->accumulator = keep(accumulator);
  return token;
}

std::shared_ptr<void> before_gradient(const at::Tensor& parameter, std::function<void()> hook) {
  auto token = std::make_shared<BeforeToken>(std::move(hook));
  auto accumulator = torch::autograd::impl::grad_accumulator(parameter);
  accumulator->add_pre_hook(std::make_unique<PreHook>(token));
  token->accumulator = keep(accumulator);
  return token;
}

const void* accumulator_of(const at::Tensor& parameter) {
  return torch::autograd::impl::try_get_grad_accumulator(parameter).get();
}

std::int64_t version_of(const at::Tensor& tensor) { return tensor.is_inference() ? 0 : tensor._version(); }

// Counting references, because whoever else uses the memory holds a tensor of its own over the same storage. A gradient
// that was handed over is a view of `incoming`, and that often one of a base that nobody else knows (the gradient of a
// linear layer's weight is a transposed product).
bool owns_memory(const at::Tensor& gradient, const at::Tensor& incoming) {
  const auto* storage = gradient.storage().unsafeGetStorageImpl();
  const auto is_here = [&](const at::Tensor& t) {
    return t.defined() && t.has_storage() && t.storage().unsafeGetStorageImpl() == storage;
  };
  if (gradient.use_count() != 1) return false;
  if (!is_here(incoming)) return gradient.storage().use_count() == 1;
  if (incoming.use_count() != 1) return false;
  const at::Tensor* base = base_of(incoming);
  if (base == nullptr || !is_here(*base)) return gradient.storage().use_count() == 2;
  return base->use_count() == holds(incoming, *base) + holds(gradient, *base) && gradient.storage().use_count() == 3;
}

}  // namespace lockstep::internal

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

bool owns_memory(const at::Tensor& gradient, const at::Tensor& incoming) {
  const auto* storage = gradient.storage().unsafeGetStorageImpl();
  const bool is_taken_over =
      incoming.defined() && incoming.has_storage() && incoming.storage().unsafeGetStorageImpl() == storage;
  // Counting, because a view made elsewhere in the graph is a tensor of its own: it shares only the storage.
  return gradient.use_count() == 1 && gradient.storage().use_count() <= (is_taken_over ? 2 : 1) &&
         (!is_taken_over || incoming.use_count() == 1);
}

}  // namespace lockstep::internal

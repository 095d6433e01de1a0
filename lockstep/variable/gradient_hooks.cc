#include "lockstep/variable/gradient_hooks.h"

#include <torch/csrc/autograd/function_hook.h>
#include <torch/torch.h>

namespace lockstep::internal {
namespace {

// LibTorch keeps hooks as long as the accumulator; ours look up whether their owner is still there.
struct Token {
  explicit Token(std::function<void()> f) : hook(std::move(f)) {}
  std::function<void()> hook;
  std::shared_ptr<void> accumulator;
};

class PostHook : public torch::autograd::FunctionPostHook {
 public:
  explicit PostHook(std::weak_ptr<Token> token) : token_(std::move(token)) {}
  torch::autograd::variable_list operator()(const torch::autograd::variable_list& outputs,
                                            const torch::autograd::variable_list&) override {
    if (const auto token = token_.lock()) token->hook();
    return outputs;
  }

 private:
  std::weak_ptr<Token> token_;
};

class PreHook : public torch::autograd::FunctionPreHook {
 public:
  explicit PreHook(std::weak_ptr<Token> token) : token_(std::move(token)) {}
  torch::autograd::variable_list operator()(const torch::autograd::variable_list& gradients) override {
    if (const auto token = token_.lock()) token->hook();
    return gradients;
  }

 private:
  std::weak_ptr<Token> token_;
};

// The tensor holds its accumulator by a weak pointer only; whose type differs between LibTorch versions.
template <typename Accumulator>
std::shared_ptr<void> keep(Accumulator accumulator) {
  return std::make_shared<Accumulator>(std::move(accumulator));
}

}  // namespace

std::shared_ptr<void> on_gradient_ready(const at::Tensor& parameter, std::function<void()> hook) {
  auto token = std::make_shared<Token>(std::move(hook));
  auto accumulator = torch::autograd::impl::grad_accumulator(parameter);
  accumulator->add_post_hook(std::make_unique<PostHook>(token));
  token->accumulator = keep(accumulator);
  return token;
}

std::shared_ptr<void> before_gradient(const at::Tensor& parameter, std::function<void()> hook) {
  auto token = std::make_shared<Token>(std::move(hook));
  auto accumulator = torch::autograd::impl::grad_accumulator(parameter);
  accumulator->add_pre_hook(std::make_unique<PreHook>(token));
  token->accumulator = keep(accumulator);
  return token;
}

}  // namespace lockstep::internal

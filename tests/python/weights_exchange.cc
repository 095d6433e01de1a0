// The C++ side of weights_test.py:
//
//   weights_exchange write FILE      a module's weights, all of them 0, 1, 2, ... times its place among the tensors
//   weights_exchange read FILE       loads them into the same module, and says whether they are that plus 1
#include <torch/torch.h>

#include <iostream>
#include <string>

#include "lockstep/checkpoint/weights.h"

namespace {

struct Net : torch::nn::Module {
  Net()
      : conv1(register_module("conv1", torch::nn::Conv2d(1, 2, 3))),
        norm(register_module("norm", torch::nn::BatchNorm2d(2))),
        half(register_module("half", torch::nn::Linear(3, 2))) {
    half->to(torch::kBFloat16);
    double place = 1;
    const torch::NoGradGuard no_grad;
    for (auto& parameter : parameters()) fill(parameter, place++);
    for (auto& buffer : buffers()) fill(buffer, place++);
  }
  static void fill(torch::Tensor& tensor, double place) {
    tensor.copy_((torch::arange(tensor.numel()) * place).reshape(tensor.sizes()));
  }
  torch::nn::Conv2d conv1;
  torch::nn::BatchNorm2d norm;
  torch::nn::Linear half;
};

bool are_one_more(const torch::nn::Module& loaded, const torch::nn::Module& original) {
  const auto buffers = original.named_buffers();
  for (const auto& item : original.named_parameters())
    if (!torch::equal(loaded.named_parameters()[item.key()], item.value() + 1)) return false;
  for (const auto& item : buffers)
    if (!torch::equal(loaded.named_buffers()[item.key()], item.value() + 1)) return false;
  return true;
}

}  // namespace

int main(int argc, char** argv) try {
  if (argc != 3) throw std::invalid_argument("weights_exchange write|read FILE");
  Net net;
  if (std::string(argv[1]) == "write") {
    lockstep::save_weights(argv[2], net, {{"format", "pt"}});
    return 0;
  }
  const Net original;
  lockstep::load_weights_into(net, argv[2]);
  return are_one_more(net, original) ? 0 : 1;
} catch (const std::exception& error) {
  std::cerr << error.what() << "\n";
  return 1;
}

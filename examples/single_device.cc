// A training program as a LibTorch user has it today: one device. single_device_mirrored.cc is the same program after
// the few lines that put it on two devices.
#include <torch/torch.h>

#include <iostream>

struct Net : torch::nn::Module {
  Net() : hidden(register_module("hidden", torch::nn::Linear(20, 64))), out(register_module("out", torch::nn::Linear(64, 2))) {}
  torch::Tensor forward(torch::Tensor x) { return out(torch::relu(hidden(x))); }
  torch::nn::Linear hidden, out;
};

int main() {
  torch::manual_seed(1);
  auto inputs = torch::randn({512, 20});
  auto labels = (inputs.sum(1) > 0).to(torch::kLong);

  Net model;
  torch::optim::Adam optimizer(model.parameters(), 1e-2);

  for (int epoch = 0; epoch < 20; ++epoch) {
    float last_loss = 0;
    for (int64_t row = 0; row < 512; row += 64) {
      auto x = inputs.slice(0, row, row + 64);
      auto y = labels.slice(0, row, row + 64);
      optimizer.zero_grad();
      auto loss = torch::nll_loss(torch::log_softmax(model.forward(x), 1), y);
      loss.backward();
      optimizer.step();
      last_loss = loss.item<float>();
    }
    if (epoch % 5 == 4) std::cout << "epoch " << epoch + 1 << " loss " << last_loss << "\n";
  }
}

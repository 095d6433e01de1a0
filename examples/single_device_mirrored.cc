// single_device.cc on two devices: the same model, the same global batches, the same losses.
#include <lockstep/lockstep.h>

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

  lockstep::MirroredStrategy strategy({"CPU:0", "CPU:1"});
  auto scope = strategy.scope();
  auto dataset = lockstep::data::Dataset::from_tensor_slices({inputs, labels}).batch(64);
  auto distributed = strategy.experimental_distribute_dataset(dataset);
  auto model = lockstep::mirrored<Net>();
  auto optimizer = lockstep::optimizer<torch::optim::Adam>(model, 1e-2);

  for (int epoch = 0; epoch < 20; ++epoch) {
    float last_loss = 0;
    for (auto batch : distributed) {
      auto losses = strategy.run([&](torch::Tensor x, torch::Tensor y) {
        optimizer.zero_grad();
        auto per_example = torch::nll_loss(torch::log_softmax(model->forward(x), 1), y, {}, torch::Reduction::None);
        auto loss = lockstep::compute_average_loss(per_example, 64);
        loss.backward();
        optimizer.step();
        return loss.detach();
      }, batch);
      last_loss = strategy.reduce("sum", losses).item<float>();
    }
    if (epoch % 5 == 4) std::cout << "epoch " << epoch + 1 << " loss " << last_loss << "\n";
  }
}

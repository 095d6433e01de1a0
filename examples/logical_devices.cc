// Images too large for one device: one replica owns four, and each has a quarter of the rows. Convolutions fetch the rows
// that they need of their neighbours; the user's module does not know. Prints how much of the activations each device holds.
#include <lockstep/lockstep.h>

#include <iostream>
#include <map>

namespace ls = lockstep;

namespace {

// [network]
// An ordinary module; it keeps what it has computed, to be looked at.
struct NetImpl : torch::nn::Module {
  torch::nn::Conv2d first = register_module("first", torch::nn::Conv2d(torch::nn::Conv2dOptions(3, 16, 5).padding(2)));
  torch::nn::Conv2d second = register_module("second", torch::nn::Conv2d(torch::nn::Conv2dOptions(16, 16, 3).padding(1)));
  torch::nn::Linear last = register_module("last", torch::nn::Linear(16, 10));
  std::vector<torch::Tensor> activations;

  torch::Tensor forward(const torch::Tensor& images) {
    const auto a = torch::relu(first(images));
    const auto b = torch::max_pool2d(a, 2);
    const auto c = torch::relu(second(b));
    activations = {images, a, b, c};
    return last(c.mean({2, 3}));
  }
};
TORCH_MODULE(Net);
// [network]

void print_memory(const std::vector<torch::Tensor>& tensors) {
  std::map<int, double> megabytes;
  for (const auto& tensor : tensors)
    for (const auto& part : ls::logical_parts(tensor)) megabytes[part.logical_device] += static_cast<double>(part.value.nbytes()) / 1e6;
  for (const auto& [device, amount] : megabytes) std::cout << "  logical device " << device << ": " << amount << " MB\n";
}

double train(ls::MirroredStrategy& strategy, bool is_split) {
  torch::manual_seed(1);
  const auto images = torch::randn({2, 3, 256, 256});
  const auto labels = torch::tensor({3, 7});
  auto scope = strategy.scope();
  auto model = ls::mirrored<NetImpl>();
  auto optimizer = ls::optimizer<torch::optim::SGD>(model, 0.1);
  double loss = 0;
  for (int step = 0; step < 3; ++step) {
    const auto losses = strategy.run([&] {
      // [split]
      // Dimension 2, the rows, in four parts, one on each logical device of the replica.
      const auto x = is_split ? strategy.experimental_split_to_logical_devices(images, {1, 1, 4, 1}) : images;
      const auto result = torch::cross_entropy_loss(model->forward(x), labels);
      result.backward();
      optimizer.step();
      // [split]
      return result.detach();
    });
    loss = strategy.reduce("sum", losses).item<double>();
  }
  print_memory(model->activations);
  return loss;
}

}  // namespace

int main() {
  // [strategy]
  // A machine with four devices in a row, all of which belong to one replica.
  const auto topology = ls::Topology::of_devices(4, /*cores_per_chip=*/4);
  ls::MirroredStrategy strategy({"CPU:0", "CPU:1", "CPU:2", "CPU:3"},
                                {.device_assignment = ls::DeviceAssignment::build(topology, {.computation_shape = {1, 1, 1, 4}})});
  // [strategy]
  std::cout << "activations on one logical device:\n";
  const auto whole = train(strategy, false);
  std::cout << "images split by rows over " << strategy.replicas().logical_devices(0)->count() << " logical devices:\n";
  const auto split = train(strategy, true);
  std::cout << "loss after three steps: " << whole << " and " << split << "\n";
  return std::abs(whole - split) < 1e-4 ? 0 : 1;
}

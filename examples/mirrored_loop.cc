#include <lockstep/lockstep.h>
namespace ls = lockstep;

struct Net : torch::nn::Module {  // a plain LibTorch module, unchanged
  Net() : hidden(register_module("hidden", torch::nn::Linear(784, 128))), out(register_module("out", torch::nn::Linear(128, 10))) {}
  torch::Tensor forward(torch::Tensor x) { return out(torch::relu(hidden(x.flatten(1)))); }
  torch::nn::Linear hidden, out;
};

int main() {
  ls::MirroredStrategy strategy({"CPU:0", "CPU:1"});  // without names: every GPU, else the CPU
  const int64_t global_batch = 64 * strategy.num_replicas_in_sync();
  auto batches = strategy.experimental_distribute_dataset(ls::data::fashion_mnist("train").shuffle(60'000, 1).batch(global_batch));
  auto scope = strategy.scope();
  auto model = ls::mirrored<Net>();  // one Net a replica, equal weights
  auto optimizer = ls::optimizer<torch::optim::Adam>(model, 1e-3);
  for (auto batch : batches) {
    auto losses = strategy.run([&](torch::Tensor x, torch::Tensor y) {
      auto loss = ls::compute_average_loss(torch::nll_loss(torch::log_softmax(model->forward(x), 1), y, {}, at::Reduction::None), global_batch);
      loss.backward();
      optimizer.step();  // sums the gradients over all replicas, then steps
      return loss.detach();
    }, batch);
    std::cout << "\rloss " << strategy.reduce("sum", losses).item<float>() << std::flush;
  }
}

#include <lockstep/lockstep.h>
namespace ls = lockstep;

int main() {
  torch::manual_seed(1);  // every run gives the same bits
  ls::MirroredStrategy strategy({"CPU:0", "CPU:1"});  // without names: every GPU, else the CPU
  const int64_t global_batch = 64 * strategy.num_replicas_in_sync();
  auto dataset = ls::data::fashion_mnist("train").shuffle(60'000).batch(global_batch, /*drop_remainder=*/true);
  auto distributed = strategy.experimental_distribute_dataset(dataset);
  auto scope = strategy.scope();
  auto model = ls::mirrored<torch::nn::Sequential>(torch::nn::Flatten(), torch::nn::Linear(784, 128), torch::nn::ReLU(),
                                                   torch::nn::Linear(128, 10), torch::nn::LogSoftmax(1));
  auto optimizer = ls::optimizer<torch::optim::Adam>(model, 1e-3);

  for (auto batch : distributed) {
    auto losses = strategy.run([&](torch::Tensor x, torch::Tensor y) {
      auto per_example = torch::nll_loss(model->forward(x), y, {}, torch::Reduction::None);
      auto loss = ls::compute_average_loss(per_example, global_batch);
      loss.backward();
      optimizer.step();  // sums the gradients over all replicas, then steps
      return loss.detach();
    }, batch);
    std::cout << "loss " << strategy.reduce("sum", losses).item<float>() << "\n";
  }
}

#include <lockstep/lockstep.h>
namespace ls = lockstep;

int main() {
  torch::manual_seed(1);
  ls::MirroredStrategy strategy;  // every GPU, else the CPU
  const int64_t global_batch = 64 * strategy.num_replicas_in_sync();
  auto dataset = ls::data::fashion_mnist("train").shuffle(60'000).batch(global_batch, /*drop_remainder=*/true);
  auto distributed = strategy.experimental_distribute_dataset(dataset.take(200));
  auto scope = strategy.scope();
  auto model = ls::mirrored<torch::nn::Sequential>(torch::nn::Flatten(), torch::nn::Linear(784, 128), torch::nn::ReLU(),
                                                   torch::nn::Linear(128, 10), torch::nn::LogSoftmax(1));
  auto optimizer = ls::optimizer(model, ls::Adam(1e-3), {.fuses_updates = true});

  auto train = [&](torch::Tensor x, torch::Tensor y) {
    auto per_example = torch::nll_loss(model->forward(x), y, {}, torch::Reduction::None);
    auto loss = ls::compute_average_loss(per_example, global_batch);
    loss.backward();
    optimizer.step();
    return loss.detach();
  };
  auto step = strategy.function(train, {.is_recorded = true});  // on a GPU: recorded, then done by one call
  float loss = 0;
  for (auto batch : distributed) loss = strategy.reduce("sum", step(batch)).item<float>();
  std::cout << "loss " << loss << ", " << (step.why_not().empty() ? "recorded" : "not recorded: " + step.why_not()) << "\n";
}

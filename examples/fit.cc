#include <lockstep/lockstep.h>
namespace ls = lockstep;

int main() {
  ls::MirroredStrategy strategy({"CPU:0", "CPU:1"});  // without names: every GPU, else the CPU
  auto scope = strategy.scope();
  ls::Model model(ls::mirrored<torch::nn::Sequential>(torch::nn::Flatten(), torch::nn::Linear(784, 128), torch::nn::ReLU(),
                                                      torch::nn::Linear(128, 10)));
  model.compile({.optimizer = ls::Adam(1e-3),
                 .loss = ls::sparse_categorical_crossentropy({.from_logits = true}),
                 .metrics = {"accuracy"}});
  model.fit(ls::data::fashion_mnist("train").shuffle(60'000).batch(256),
            {.epochs = 2, .validation_data = ls::data::fashion_mnist("test").batch(1000)});
}

#include <lockstep/lockstep.h>
namespace ls = lockstep;

struct Net : torch::nn::Module {
  Net() : hidden(register_module("hidden", torch::nn::Linear(784, 128))), top(register_module("top", torch::nn::Linear(128, 10))) {}
  torch::Tensor forward(torch::Tensor x) { return top(torch::relu(hidden(x.flatten(1)))); }
  torch::nn::Linear hidden, top;
};

int main(int argc, char**) {
  if (ls::run_role_if_server()) return 0;  // lockstep run --ps 1 --workers 2 --chief ./parameter_server_fit
  ls::ParameterServerStrategy strategy;
  ls::Model model(strategy.hosted<Net>());  // its parameters live on the servers
  model.compile({.optimizer = ls::Adam(1e-3),
                 .loss = ls::sparse_categorical_crossentropy({.from_logits = true}),
                 .metrics = {"accuracy"},
                 .pss_evaluation_shards = ls::kAutoShards});
  // Runs on the workers, each of which reads all of it, in an order of its own.
  ls::DatasetCreator train([] { return ls::data::fashion_mnist("train").shuffle(60'000).batch(64); });
  ls::DatasetCreator test([] { return ls::data::fashion_mnist("test").batch(250); });
  const auto history = model.fit(
      train, {.epochs = 2, .steps_per_epoch = argc > 1 ? 200 : 937, .validation_data = test, .verbose = ls::Verbose::kLine});
  return history.at("val_accuracy").back() > 0.7 ? 0 : 1;
}

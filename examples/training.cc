// The pieces of docs/training.md: callbacks of one's own, a training step of one's own, a metric of one's own, weights.
#include <lockstep/lockstep.h>

#include <cstring>
#include <iostream>

namespace ls = lockstep;

namespace {

// [callback]
// Stops when an epoch has taken too long.
struct TimeLimit : ls::Callback {
  explicit TimeLimit(double most) : most_seconds(most) {}
  void on_epoch_begin(ls::Training&) override { begin = std::chrono::steady_clock::now(); }
  void on_epoch_end(ls::Training& training, ls::Logs& logs) override {
    const std::chrono::duration<double> seconds = std::chrono::steady_clock::now() - begin;
    logs.set("seconds", seconds.count());  // also in History, CSVLogger and TensorBoard
    if (seconds.count() > most_seconds) training.stop();
  }
  double most_seconds;
  std::chrono::steady_clock::time_point begin;
};
// [callback]

struct Net : torch::nn::Module {
  Net() : first(register_module("first", torch::nn::Linear(784, 64))), second(register_module("second", torch::nn::Linear(64, 10))) {}
  torch::Tensor forward(const torch::Tensor& x) { return second(torch::relu(first(x.flatten(1)))); }
  torch::nn::Linear first, second;
};

}  // namespace

int main() {
  ls::MirroredStrategy strategy({"CPU:0", "CPU:1"});
  const auto scope = strategy.scope();
  const auto train = ls::data::fashion_mnist("train").take(4000).shuffle(4000, 1).batch(100);
  const auto test = ls::data::fashion_mnist("test").take(1000).batch(100);
  const auto module = ls::mirrored<Net>();
  ls::Model model(module);

  // [compile]
  model.compile({.optimizer = ls::SGD({.learning_rate = ls::schedules::CosineDecay({.initial_learning_rate = 0.1, .decay_steps = 200}),
                                       .momentum = 0.9,
                                       .global_clipnorm = 1.0}),
                 .loss = ls::sparse_categorical_crossentropy({.from_logits = true}),
                 .metrics = {"accuracy", ls::Metric("confidence", [](const torch::Tensor&, const torch::Tensor& logits) {
                               return std::get<0>(logits.softmax(1).max(1));  // a value for each example
                             })}});
  // [compile]

  // [fit]
  const auto history = model.fit(train, {.epochs = 3,
                                         .validation_data = test,
                                         .callbacks = {TimeLimit(60), ls::EarlyStopping({.monitor = "val_loss", .patience = 2}),
                                                       ls::CSVLogger("training.csv"), ls::TerminateOnNaN()}});
  std::cout << "accuracy by epoch: " << ls::join(", ", history.at("val_accuracy")) << "\n";
  // [fit]

  // [train_step]
  model.compile({.optimizer = ls::Adam(1e-3),
                 .loss = ls::sparse_categorical_crossentropy({.from_logits = true}),
                 .metrics = {"accuracy"},
                 .train_step = [&](ls::TrainStep& step) {  // in every replica
                   const auto outputs = step.forward();
                   const auto part = static_cast<double>(step.rows()) / static_cast<double>(step.global_rows());
                   const auto penalty = module->first->weight.abs().mean() * 0.01 * part;
                   step.minimize(step.loss(outputs) + penalty);
                   step.update_metrics(outputs);
                 }});
  model.fit(train, {.epochs = 1, .verbose = ls::Verbose::kLine});
  // [train_step]

  // [weights]
  ls::save_weights("net.safetensors", module);       // opens in Python: safetensors.torch.load_file("net.safetensors")
  ls::load_weights_into(module, "net.safetensors");  // so does what Python wrote
  const auto logits = model.predict(test);           // [1000, 10], in the order of the data
  // [weights]
  std::cout << "evaluated again: " << ls::show(model.evaluate(test)) << ", " << logits.size(0) << " predictions\n";
}

// Trains a small convolutional network on Fashion-MNIST with two CPU replicas, evaluates it and saves its weights.
// `make demo` runs it.
//
//   fashion_mnist [--epochs N] [--replicas R] [--out FILE] [--test]
#include <lockstep/lockstep.h>

#include <cstring>
#include <iostream>

namespace ls = lockstep;

namespace {

struct Net : torch::nn::Module {
  Net()
      : conv1(register_module("conv1", torch::nn::Conv2d(torch::nn::Conv2dOptions(1, 16, 3).padding(1)))),
        conv2(register_module("conv2", torch::nn::Conv2d(torch::nn::Conv2dOptions(16, 32, 3).padding(1)))),
        fc1(register_module("fc1", torch::nn::Linear(32 * 7 * 7, 128))),
        fc2(register_module("fc2", torch::nn::Linear(128, 10))) {}

  torch::Tensor forward(torch::Tensor x) {
    x = torch::relu(torch::max_pool2d(conv1(x), 2));
    x = torch::relu(torch::max_pool2d(conv2(x), 2));
    x = torch::dropout(torch::relu(fc1(x.flatten(1))), 0.25, is_training());
    return fc2(x);
  }

  torch::nn::Conv2d conv1, conv2;
  torch::nn::Linear fc1, fc2;
};

struct Settings {
  int epochs = 10;
  int replicas = 2;
  std::int64_t batch_per_replica = 64;
  std::int64_t train_batches = 0;  // 0: all
  std::string out = "fashion_mnist.pt";
};

Settings parse(int argc, char** argv) {
  Settings settings;
  for (int i = 1; i < argc; ++i) {
    const auto is = [&](const char* name) { return std::strcmp(argv[i], name) == 0; };
    if (is("--test")) {
      settings.epochs = 1;
      settings.train_batches = 40;
    } else if (i + 1 < argc && is("--epochs")) {
      settings.epochs = std::stoi(argv[++i]);
    } else if (i + 1 < argc && is("--replicas")) {
      settings.replicas = std::stoi(argv[++i]);
    } else if (i + 1 < argc && is("--out")) {
      settings.out = argv[++i];
    } else {
      std::cerr << "usage: fashion_mnist [--epochs N] [--replicas R] [--out FILE] [--test]\n";
      std::exit(2);
    }
  }
  return settings;
}

// The mean loss and accuracy over a dataset; every replica takes its part of each batch.
std::pair<double, double> evaluate(ls::Strategy& strategy, const ls::MirroredModule<Net>& model, const ls::DistributedDataset& batches) {
  const torch::NoGradGuard no_grad;
  model.eval();
  double loss = 0, correct = 0, examples = 0;
  for (auto batch : batches) {
    auto results = strategy.run(
        [&](torch::Tensor x, torch::Tensor y) {
          auto logits = model->forward(x);
          auto losses = torch::nn::functional::cross_entropy(
              logits, y, torch::nn::functional::CrossEntropyFuncOptions().reduction(torch::kSum));
          return std::tuple(losses, logits.argmax(1).eq(y).sum(), x.size(0));
        },
        batch);
    const auto [l, c, n] = strategy.reduce("sum", results);
    loss += l.item<double>();
    correct += c.item<double>();
    examples += static_cast<double>(n);
  }
  model.train();
  return {loss / examples, correct / examples};
}

}  // namespace

int main(int argc, char** argv) try {
  const auto settings = parse(argc, argv);
  std::vector<std::string> devices;
  for (int k = 0; k < settings.replicas; ++k) devices.push_back("CPU:" + std::to_string(k));

  torch::manual_seed(1);
  ls::MirroredStrategy strategy(devices, {.seed = 1});
  const auto global_batch = settings.batch_per_replica * strategy.num_replicas_in_sync();
  auto train = ls::data::fashion_mnist("train").shuffle(60'000, 1).batch(global_batch);
  if (settings.train_batches > 0) train = train.take(settings.train_batches);
  auto train_batches = strategy.experimental_distribute_dataset(train);
  auto test_batches = strategy.experimental_distribute_dataset(ls::data::fashion_mnist("test").batch(1000));

  const auto scope = strategy.scope();
  const auto model = ls::mirrored<Net>();
  auto optimizer = ls::optimizer<torch::optim::Adam>(model, 1e-3);
  std::cout << "Fashion-MNIST: 60000 images, " << strategy.num_replicas_in_sync() << " replicas, global batch " << global_batch
            << "\n";

  double accuracy = 0, training_seconds = 0;
  for (int epoch = 1; epoch <= settings.epochs; ++epoch) {
    ls::ProgressBar progress("Epoch " + std::to_string(epoch) + "/" + std::to_string(settings.epochs), train_batches.cardinality());
    if (epoch == settings.epochs - 1) optimizer.set_learning_rate(2e-4);
    std::int64_t steps = 0, examples = 0;
    double loss_sum = 0;
    for (auto batch : train_batches) {
      auto results = strategy.run(
          [&](torch::Tensor x, torch::Tensor y) {
            const auto rows = ls::get_replica_context()->all_reduce("sum", x.size(0));  // the last batch is smaller
            auto per_example = torch::nn::functional::cross_entropy(
                model->forward(x), y, torch::nn::functional::CrossEntropyFuncOptions().reduction(torch::kNone));
            ls::compute_average_loss(per_example, rows).backward();
            optimizer.step();
            return std::tuple(per_example.detach().sum(), x.size(0));
          },
          batch);
      const auto [loss, rows] = strategy.reduce("sum", results);
      loss_sum += loss.item<double>();
      examples += rows;
      progress.update(++steps, examples, {{"loss", loss_sum / static_cast<double>(examples)}});
    }
    training_seconds += progress.seconds();
    const auto [test_loss, test_accuracy] = evaluate(strategy, model, test_batches);
    accuracy = test_accuracy;
    progress.finish({{"loss", loss_sum / static_cast<double>(examples)}, {"val_loss", test_loss}, {"val_accuracy", test_accuracy}});
  }

  torch::save(model.local(), settings.out);
  std::cout << "test accuracy " << accuracy * 100 << " % after " << training_seconds << " s of training; weights in " << settings.out
            << "\n";
  return 0;
} catch (const std::exception& error) {
  std::cerr << "fashion_mnist: " << error.what() << "\n";
  return 1;
}

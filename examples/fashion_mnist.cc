// Trains a small convolutional network on Fashion-MNIST with two CPU replicas, evaluates it, and saves its weights, checkpoints
// and logs. Stopped at any moment, it goes on where it was. `make demo` runs it.
//
//   fashion_mnist [--epochs N] [--replicas R | --gpu] [--out FOLDER] [--test]
#include <lockstep/lockstep.h>
#include <sys/stat.h>

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
  bool is_on_gpus = false;
  std::int64_t batch_per_replica = 64;
  std::int64_t train_batches = -1;  // all
  std::string out = "fashion_mnist";
};

Settings parse(int argc, char** argv) {
  Settings settings;
  for (int i = 1; i < argc; ++i) {
    const auto is = [&](const char* name) { return std::strcmp(argv[i], name) == 0; };
    if (is("--test")) {
      settings.epochs = 1;
      settings.train_batches = 40;
    } else if (is("--gpu")) {
      settings.is_on_gpus = true;
    } else if (i + 1 < argc && is("--epochs")) {
      settings.epochs = std::stoi(argv[++i]);
    } else if (i + 1 < argc && is("--replicas")) {
      settings.replicas = std::stoi(argv[++i]);
    } else if (i + 1 < argc && is("--out")) {
      settings.out = argv[++i];
    } else {
      std::cerr << "usage: fashion_mnist [--epochs N] [--replicas R | --gpu] [--out FOLDER] [--test]\n";
      std::exit(2);
    }
  }
  return settings;
}

// Every GPU, with --gpu; without one MirroredStrategy says so.
std::vector<std::string> devices_for(const Settings& settings) {
  std::vector<std::string> devices;
  if (settings.is_on_gpus) {
    devices = ls::list_logical_devices("GPU");
    return devices.empty() ? std::vector<std::string>{"GPU:0"} : devices;
  }
  for (int k = 0; k < settings.replicas; ++k) devices.push_back("CPU:" + std::to_string(k));
  return devices;
}

}  // namespace

int main(int argc, char** argv) try {
  const auto settings = parse(argc, argv);
  mkdir(settings.out.c_str(), 0777);
  torch::manual_seed(1);
  ls::MirroredStrategy strategy(devices_for(settings), {.seed = 1});
  const auto scope = strategy.scope();
  ls::Model model(ls::mirrored<Net>());
  model.compile({.optimizer = ls::Adam(1e-3),
                 .loss = ls::sparse_categorical_crossentropy({.from_logits = true}),
                 .metrics = {"accuracy"}});
  std::cout << model.summary();

  const auto global_batch = settings.batch_per_replica * strategy.num_replicas_in_sync();
  const auto train = ls::data::fashion_mnist("train").shuffle(60'000, 1).batch(global_batch).take(settings.train_batches);
  const auto test = ls::data::fashion_mnist("test").batch(1000);
  model.fit(train, {.epochs = settings.epochs,
                    .validation_data = test,
                    .callbacks = {ls::LearningRateScheduler([&](int epoch, double) { return epoch + 2 < settings.epochs ? 1e-3 : 2e-4; }),
                                  ls::TensorBoard(settings.out + "/logs"), ls::BackupAndRestore(settings.out + "/backup"),
                                  ls::ModelCheckpoint(settings.out + "/checkpoints", {.monitor = "val_loss", .max_to_keep = 2}),
                                  ls::ModelCheckpoint(settings.out + "/best.safetensors",
                                                      {.monitor = "val_accuracy", .save_best_only = true})}});

  ls::load_weights_into(*model.module(), settings.out + "/best.safetensors");
  std::cout << "test accuracy " << model.evaluate(test).at("accuracy") * 100 << " % with the best weights\n"
            << "weights (safetensors, for Python too): " << settings.out << "/best.safetensors\n"
            << "checkpoints (all of the training, the last two and the best): " << settings.out << "/checkpoints\n"
            << "TensorBoard logs: " << settings.out << "/logs\n";
  return 0;
} catch (const std::exception& error) {
  std::cerr << "fashion_mnist: " << error.what() << "\n";
  return 1;
}

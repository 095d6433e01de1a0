// Transfer learning: a backbone that Python trained on clothes (make_backbone.py, PyTorch and safetensors) learns from 400
// pictures to tell sandals, sneakers, bags and boots, which it has never seen. First a new head on the frozen backbone, then all
// of it with a smaller rate.
//
//   transfer_learning [--weights FILE]                           without: examples/data/backbone.safetensors
//   lockstep run -n 2 ./transfer_learning                        two workers, the same numbers but for rounding
//   lockstep run --hosts a,b --ssh ./transfer_learning --weights /shared/backbone.safetensors
#include <lockstep/lockstep.h>

#include <iostream>

namespace ls = lockstep;

namespace {

// [net]
// The same names and sizes as in Python, but for the head, which is new.
struct Backbone : torch::nn::Module {
  Backbone()
      : conv1(register_module("conv1", torch::nn::Conv2d(torch::nn::Conv2dOptions(1, 8, 3).padding(1)))),
        conv2(register_module("conv2", torch::nn::Conv2d(torch::nn::Conv2dOptions(8, 16, 3).padding(1)))),
        conv3(register_module("conv3", torch::nn::Conv2d(torch::nn::Conv2dOptions(16, 32, 3).padding(1)))) {}
  torch::Tensor forward(torch::Tensor x) {
    for (auto* conv : {&conv1, &conv2, &conv3}) x = torch::max_pool2d(torch::relu((*conv)(x)), 2);
    return x.flatten(1);
  }
  torch::nn::Conv2d conv1, conv2, conv3;
};

struct Net : torch::nn::Module {
  Net()
      : backbone(register_module("backbone", std::make_shared<Backbone>())),
        head(register_module("head", torch::nn::Linear(32 * 3 * 3, 4))) {}
  torch::Tensor forward(const torch::Tensor& x) { return head(backbone->forward(x)); }
  std::shared_ptr<Backbone> backbone;
  torch::nn::Linear head;
};
// [net]

// Sandals, sneakers, bags and ankle boots, as classes 0 to 3.
ls::data::Dataset shoes_and_bags(const std::string& split, int64_t count) {
  const auto number = torch::tensor({-1, -1, -1, -1, -1, 0, -1, 1, 2, 3}, torch::kLong);
  return ls::data::fashion_mnist(split)
      .map([number](torch::Tensor image, torch::Tensor label) { return std::pair(image, number[label.item<int64_t>()]); })
      .filter([](torch::Tensor, torch::Tensor label) { return label.item<int64_t>() >= 0; })
      .take(count)
      .cache();
}

// [freeze]
// In all copies; compile() then sees what is left to train.
void set_trainable(const ls::MirroredModule<Net>& net, bool is_trainable) {
  for (size_t replica = 0; replica < net.size(); ++replica)
    for (auto& parameter : net.at(replica).backbone->parameters()) parameter.requires_grad_(is_trainable);
}
// [freeze]

}  // namespace

int main(int argc, char** argv) try {
  std::string weights = "examples/data/backbone.safetensors";
  for (int k = 1; k + 1 < argc; ++k)
    if (std::string(argv[k]) == "--weights") weights = argv[k + 1];
  torch::manual_seed(1);
  ls::MultiWorkerMirroredStrategy strategy;
  const auto scope = strategy.scope();
  const auto train = shoes_and_bags("train", 400).shuffle(400, 1).batch(32);
  const auto test = shoes_and_bags("test", 1000).batch(250);

  // [load]
  const auto net = ls::mirrored<Net>();
  for (const auto& line : ls::load_weights_into(net, weights, {.strict = false})) std::cout << "not loaded: " << line << "\n";
  const auto before = net->backbone->conv1->weight.detach().clone();
  // [load]

  // [train]
  ls::Model model(net);
  const auto loss = ls::sparse_categorical_crossentropy({.from_logits = true});
  set_trainable(net, false);
  model.compile({.optimizer = ls::Adam(1e-2), .loss = loss, .metrics = {"accuracy"}});
  model.fit(train, {.epochs = 5, .validation_data = test});
  const bool is_frozen = torch::equal(net->backbone->conv1->weight, before);

  set_trainable(net, true);
  model.compile({.optimizer = ls::Adam(5e-4), .loss = loss, .metrics = {"accuracy"}});
  const auto history = model.fit(train, {.epochs = 10, .initial_epoch = 5, .validation_data = test});
  // [train]
  const bool has_moved = !torch::equal(net->backbone->conv1->weight, before);
  const double accuracy = history.at("val_accuracy").back();
  std::cout << "accuracy " << accuracy * 100 << " % on shoes and bags\n";
  return is_frozen && has_moved && accuracy > 0.9 ? 0 : 1;
} catch (const std::exception& error) {
  std::cerr << "transfer_learning: " << error.what() << "\n";
  return 1;
}

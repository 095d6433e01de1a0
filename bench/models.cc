#include "bench/models.h"

#include <stdexcept>

namespace bench {
namespace {

namespace F = torch::nn::functional;
using torch::nn::Conv2dOptions;

class Mlp final : public Net {
 public:
  at::Tensor forward(const at::Tensor& x) override { return last_(torch::relu(first_(x.flatten(1)))); }

 private:
  torch::nn::Linear first_ = register_module("first", torch::nn::Linear(784, 128));
  torch::nn::Linear last_ = register_module("last", torch::nn::Linear(128, 10));
};

class SmallCnn final : public Net {
 public:
  at::Tensor forward(const at::Tensor& x) override {
    const auto features = torch::max_pool2d(torch::relu(conv_(x)), 2);
    return last_(torch::relu(first_(features.flatten(1))));
  }

 private:
  torch::nn::Conv2d conv_ = register_module("conv", torch::nn::Conv2d(Conv2dOptions(1, 32, 3)));
  torch::nn::Linear first_ = register_module("first", torch::nn::Linear(5408, 64));
  torch::nn::Linear last_ = register_module("last", torch::nn::Linear(64, 10));
};

class Cnn final : public Net {
 public:
  at::Tensor forward(const at::Tensor& x) override {
    const auto low = torch::max_pool2d(torch::relu(conv2_(torch::relu(conv1_(x)))), 2);
    const auto high = torch::max_pool2d(torch::relu(conv4_(torch::relu(conv3_(low)))), 2);
    return last_(torch::relu(first_(high.flatten(1))));
  }

 private:
  torch::nn::Conv2d add_conv(const char* name, std::int64_t from, std::int64_t to) {
    return register_module(name, torch::nn::Conv2d(Conv2dOptions(from, to, 3).padding(1)));
  }

  torch::nn::Conv2d conv1_ = add_conv("conv1", 1, 32);
  torch::nn::Conv2d conv2_ = add_conv("conv2", 32, 32);
  torch::nn::Conv2d conv3_ = add_conv("conv3", 32, 64);
  torch::nn::Conv2d conv4_ = add_conv("conv4", 64, 64);
  torch::nn::Linear first_ = register_module("first", torch::nn::Linear(3136, 256));
  torch::nn::Linear last_ = register_module("last", torch::nn::Linear(256, 10));
};

constexpr std::int64_t kRows = 1'000'000;
constexpr std::int64_t kLookups = 26;

class Recommender final : public Net {
 public:
  at::Tensor forward(const at::Tensor& x) override { return last_(torch::relu(first_(embedding_(x).flatten(1)))).squeeze(1); }

  at::Tensor loss(const at::Tensor& output, const at::Tensor& target, LossReduction reduction) const override {
    return torch::binary_cross_entropy_with_logits(
        output, target, {}, {}, reduction == LossReduction::kMean ? torch::Reduction::Mean : torch::Reduction::None);
  }

 private:
  torch::nn::Embedding embedding_ =
      register_module("embedding", torch::nn::Embedding(torch::nn::EmbeddingOptions(kRows, 32).sparse(true)));
  torch::nn::Linear first_ = register_module("first", torch::nn::Linear(kLookups * 32, 256));
  torch::nn::Linear last_ = register_module("last", torch::nn::Linear(256, 1));
};

constexpr std::int64_t kSequence = 64;
constexpr std::int64_t kWidth = 128;

class Transformer final : public Net {
 public:
  // x: [sequence, batch, width]. LibTorch's layer is post-norm with relu; no dropout, so that all peers do the same work.
  at::Tensor forward(const at::Tensor& x) override { return last_(layer2_(layer1_(x)).mean(0)); }

 private:
  torch::nn::TransformerEncoderLayer add_layer(const char* name) {
    const auto options = torch::nn::TransformerEncoderLayerOptions(kWidth, 4).dim_feedforward(512).dropout(0.0);
    return register_module(name, torch::nn::TransformerEncoderLayer(options));
  }

  torch::nn::TransformerEncoderLayer layer1_ = add_layer("layer1");
  torch::nn::TransformerEncoderLayer layer2_ = add_layer("layer2");
  torch::nn::Linear last_ = register_module("last", torch::nn::Linear(kWidth, 10));
};

}  // namespace

Workload find_workload(const std::string& name) {
  static const std::vector<Workload> all = {
      {"W1", 64, 0.01, false, true},   {"W2", 64, 0.001, false, true}, {"W3", 64, 0.001, true, true},
      {"W4", 256, 0.01, false, false}, {"W5", 32, 0.001, true, false},
  };
  for (const auto& workload : all)
    if (workload.name == name) return workload;
  throw std::invalid_argument("there is no model '" + name + "'; use W1, W2, W3, W4 or W5");
}

at::Tensor Net::loss(const at::Tensor& output, const at::Tensor& target, LossReduction reduction) const {
  return torch::cross_entropy_loss(output, target, {},
                                   reduction == LossReduction::kMean ? torch::Reduction::Mean : torch::Reduction::None);
}

std::shared_ptr<Net> make_net(const std::string& name) {
  switch (find_workload(name).name[1]) {
    case '1': return std::make_shared<Mlp>();
    case '2': return std::make_shared<SmallCnn>();
    case '3': return std::make_shared<Cnn>();
    case '4': return std::make_shared<Recommender>();
    default: return std::make_shared<Transformer>();
  }
}

std::unique_ptr<torch::optim::Optimizer> make_optimizer(const Workload& workload, std::vector<at::Tensor> parameters) {
  if (workload.is_adam)
    return std::make_unique<torch::optim::Adam>(std::move(parameters), torch::optim::AdamOptions(workload.learning_rate));
  return std::make_unique<torch::optim::SGD>(std::move(parameters), torch::optim::SGDOptions(workload.learning_rate));
}

}  // namespace bench

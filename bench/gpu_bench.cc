// Steps per second of one replica on a GPU: as LibTorch's own loop, as run(), and recorded.
//
//   gpu_bench --model=W1|W2 [--seconds=2] [--rounds=5]
//
// The modes take turns; a line of JSON for each: its median, and every round. Adam, batch 64, batches in the GPU's memory.

#include <algorithm>
#include <cstdio>
#include <functional>
#include <map>
#include <string>

#include "bench/models.h"
#include "bench/timing.h"
#include "lockstep/lockstep.h"

namespace {

namespace ls = lockstep;

// Images of noise: how fast they are learned does not depend on what they show.
struct Data {
  Data() {
    for (std::int64_t i = 0; i < bench::kBatches; ++i)
      batches.emplace_back(torch::rand({64, 1, 28, 28}, torch::kCUDA),
                           torch::randint(10, {64}, torch::TensorOptions(torch::kCUDA).dtype(torch::kLong)));
  }
  const bench::Batch& next() { return batches[at++ % batches.size()]; }
  std::vector<bench::Batch> batches;
  std::size_t at = 0;
};

// A mode of training: one step, of which the last loss can be asked.
using Step = std::function<torch::Tensor(const bench::Batch&)>;

Step plain_step(const std::string& model) {
  auto net = bench::make_net(model);
  net->to(torch::kCUDA);
  auto optimizer = std::make_shared<torch::optim::Adam>(net->parameters(), torch::optim::AdamOptions(1e-3));
  return [net, optimizer](const bench::Batch& batch) {
    optimizer->zero_grad();
    const auto loss = net->loss(net->forward(batch.first), batch.second, bench::LossReduction::kMean);
    loss.backward();
    optimizer->step();
    return loss.detach();
  };
}

template <bool is_recorded>
Step lockstep_step(const std::string& name) {
  struct Training {
    explicit Training(const std::string& model_name)
        : model([&] {
            const auto scope = strategy.scope();
            return ls::mirrored_from([&] { return bench::make_net(model_name); });
          }()),
          optimizer(ls::optimizer(model, ls::Adam(1e-3), {.fuses_updates = true})) {}
    torch::Tensor step(const torch::Tensor& x, const torch::Tensor& y) {
      const auto loss = model->loss(model->forward(x), y, bench::LossReduction::kMean);
      loss.backward();
      optimizer.step();
      return loss.detach();
    }
    ls::MirroredStrategy strategy{std::vector<std::string>{"GPU:0"}};
    ls::MirroredModule<bench::Net> model;
    ls::Optimizer optimizer;
  };
  auto training = std::make_shared<Training>(name);
  auto body = [training](const torch::Tensor& x, const torch::Tensor& y) { return training->step(x, y); };
  if constexpr (is_recorded) {
    auto function = std::make_shared<ls::Function<decltype(body)>>(training->strategy.function(body, {.is_recorded = true}));
    return [training, function](const bench::Batch& batch) { return (*function)(batch.first, batch.second)[0]; };
  } else {
    return [training, body](const bench::Batch& batch) { return training->strategy.run(body, batch.first, batch.second)[0]; };
  }
}

double steps_per_second(const Step& step, Data& data, double seconds) {
  torch::cuda::synchronize();
  const auto begin = bench::now_us();
  std::int64_t steps = 0;
  torch::Tensor loss;
  while (bench::now_us() - begin < 1e6 * seconds) {
    for (int i = 0; i < 16; ++i) loss = step(data.next());
    steps += 16;
    loss.item<float>();  // not further ahead than this
  }
  torch::cuda::synchronize();
  return 1e6 * static_cast<double>(steps) / (bench::now_us() - begin);
}

}  // namespace

int main(int argc, char** argv) try {
  std::map<std::string, std::string> arguments{{"model", "W2"}, {"seconds", "1"}, {"rounds", "5"}};
  for (int i = 1; i < argc; ++i) {
    const std::string text = argv[i];
    const auto equals = text.find('=');
    arguments[text.substr(2, equals - 2)] = text.substr(equals + 1);
  }
  const auto& model = arguments["model"];
  Data data;
  const std::map<std::string, Step> modes{
      {"libtorch", plain_step(model)}, {"run", lockstep_step<false>(model)}, {"function", lockstep_step<true>(model)}};
  std::map<std::string, std::vector<double>> samples;
  for (const auto& [name, step] : modes) steps_per_second(step, data, 0.5);
  for (int round = 0; round < std::stoi(arguments["rounds"]); ++round)
    for (const auto& [name, step] : modes)
      samples[name].push_back(steps_per_second(step, data, std::stod(arguments["seconds"])));
  for (const auto& [name, values] : samples) {
    std::printf("{\"model\": \"%s\", \"mode\": \"%s\", \"steps_per_s\": %.1f, \"samples\": [", model.c_str(), name.c_str(),
                bench::quantile(values, 0.5));
    for (std::size_t i = 0; i < values.size(); ++i) std::printf("%s%.1f", i > 0 ? ", " : "", values[i]);
    std::printf("]}\n");
  }
  return 0;
} catch (const std::exception& error) {
  std::fprintf(stderr, "gpu_bench: %s\n", error.what());
  return 1;
}

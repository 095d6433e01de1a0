#include <lockstep/lockstep.h>
#include <torch/torch.h>

#include <chrono>
#include <iostream>

#include "tests/multi_worker/scenarios.h"

// Collectives of tensors on the replicas' device, which may have an engine of its own, against the same on the CPU.

namespace lockstep::testing {
namespace {

using Clock = std::chrono::steady_clock;

torch::Tensor value_of(int replica, std::int64_t count, torch::ScalarType dtype) {
  const auto numbers = torch::arange(count, torch::kDouble).remainder(13) * 0.37 + replica * 1.21;
  return dtype == torch::kBool ? numbers.remainder(2) > 1 : numbers.to(dtype);
}

void say(const std::string& what, bool is_right) { std::cout << what << " " << (is_right ? "right" : "WRONG") << std::endl; }

bool is_same(const torch::Tensor& there, const torch::Tensor& here) {
  return there.cpu().scalar_type() == here.scalar_type() && torch::equal(there.cpu(), here);
}

// Small ones travel with the comparison, large ones by themselves; odd lengths leave chunks of different sizes.
void check_sums(MultiWorkerMirroredStrategy& strategy) {
  for (const auto dtype :
       {torch::kFloat, torch::kDouble, torch::kHalf, torch::kBFloat16, torch::kLong, torch::kInt, torch::kBool})
    for (const std::int64_t count : {1, 1001, 300'007}) {
      const auto same = strategy.run([&](ReplicaContext& context) {
        const auto here = value_of(context.replica_id_in_sync_group(), count, dtype);
        const auto list = context.all_reduce("sum", std::vector<torch::Tensor>{here, here.to(torch::kDouble)});
        const auto there = context.all_reduce(
            "sum",
            std::vector<torch::Tensor>{here.to(context.torch_device()), here.to(context.torch_device(), torch::kDouble)});
        return is_same(there[0], list[0]) && is_same(there[1], list[1]) && there[0].device() == context.torch_device();
      });
      bool all = true;
      for (const bool one : same) all = all && one;
      say(lockstep::str("sum of ", count, " ", dtype), all);
    }
}

void check_gathers(MultiWorkerMirroredStrategy& strategy) {
  for (const std::int64_t rows : {1, 50'000}) {
    const auto same = strategy.run([&](ReplicaContext& context) {
      const auto here =
          value_of(context.replica_id_in_sync_group(), rows * (1 + context.replica_id_in_sync_group()), torch::kFloat);
      return is_same(context.all_gather(here.to(context.torch_device()), 0), context.all_gather(here, 0));
    });
    bool all = true;
    for (const bool one : same) all = all && one;
    say(lockstep::str("gather of ", rows, " rows and more"), all);
  }
}

void check_beginnings(MultiWorkerMirroredStrategy& strategy) {
  const auto scope = strategy.scope();
  torch::manual_seed(100 + strategy.worker_rank());  // worker 0's value counts
  auto model = mirrored<torch::nn::LinearImpl>(200, 300);
  const auto sums = strategy.run([&](ReplicaContext& context) {
    const auto mine = model->weight.detach().clone();
    return is_same(context.all_reduce("sum", mine).cpu(), (mine * context.num_replicas_in_sync()).cpu());
  });
  say("beginnings", sums[0]);
}

// Not where the others' are: the values still get there.
void check_mixed(MultiWorkerMirroredStrategy& strategy) {
  const auto sums = strategy.run([&](ReplicaContext& context) {
    const auto device = context.replica_id_in_sync_group() == 0 ? torch::Device(torch::kCPU) : context.torch_device();
    return context.all_reduce("sum", torch::ones({10'000}, torch::TensorOptions(device))).sum().item<double>();
  });
  say("mixed devices", sums[0] == 10'000.0 * strategy.num_replicas_in_sync());
}

void check_mistakes(MultiWorkerMirroredStrategy& strategy) {
  std::string code = "nothing";
  try {
    strategy.run([&](ReplicaContext& context) {
      context.all_reduce("sum", torch::ones({10'000 + strategy.worker_rank()}, torch::TensorOptions(context.torch_device())));
    });
  } catch (const Error& error) {
    code = name_of(error.code());
  }
  say("another shape: " + code, code == "kInvalidArgument");
  check_gathers(strategy);
}

double milliseconds_of(int rounds, const std::function<void()>& body) {
  for (int round = 0; round < 3; ++round) body();
  const auto begin = Clock::now();
  for (int round = 0; round < rounds; ++round) body();
  return std::chrono::duration<double, std::milli>(Clock::now() - begin).count() / rounds;
}

// 64 MB, and a step of a model of as many.
void print_times(MultiWorkerMirroredStrategy& strategy) {
  const auto device = strategy.run([](ReplicaContext& context) { return context.torch_device(); })[0];
  auto large = torch::zeros({16 << 20}, torch::TensorOptions(device));
  const auto sum = milliseconds_of(20, [&] {
    strategy.run([&](ReplicaContext& context) { context.all_reduce_("sum", large); });
    large.sum().item<float>();
  });
  const auto scope = strategy.scope();
  auto model = mirrored<torch::nn::SequentialImpl>(
      torch::nn::Linear(2048, 2048), torch::nn::ReLU(), torch::nn::Linear(2048, 2048), torch::nn::ReLU(),
      torch::nn::Linear(2048, 2048), torch::nn::ReLU(), torch::nn::Linear(2048, 2048));
  auto optimizer = lockstep::optimizer<torch::optim::SGD>(model, 0.01);
  const auto x = torch::randn({4096, 2048}, torch::TensorOptions(device));
  const auto step = milliseconds_of(20, [&] {
    const auto losses = strategy.run([&] {
      const auto loss = model->forward(x).square().mean();
      loss.backward();
      optimizer.step();
      return loss.detach();
    });
    losses[0].item<float>();
  });
  std::cout << "times all_reduce_64MB " << sum << " ms, step_of_64MB_gradients " << step << " ms" << std::endl;
}

}  // namespace

void tensors(const Parameters& parameters) {
  MultiWorkerMirroredStrategy strategy(nullptr, options_of(parameters));
  if (parameters.number("times", 0) == 1) return print_times(strategy);
  check_sums(strategy);
  check_gathers(strategy);
  check_beginnings(strategy);
  check_mixed(strategy);
  check_mistakes(strategy);
  std::cout << "end" << std::endl;
}

}  // namespace lockstep::testing

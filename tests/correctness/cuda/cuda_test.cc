#include <gtest/gtest.h>

#include "tests/correctness/models.h"

// The same training on a GPU: one replica, and two replicas that share it. Built only with a LibTorch that has CUDA.

namespace lockstep::testing {
namespace {

class Cuda : public ::testing::Test {
 protected:
  void TearDown() override { reset_logical_device_configuration(); }

  static std::vector<std::string> two_on_one_gpu() {
    set_logical_device_configuration("GPU:0", 2);
    return {"GPU:0", "GPU:1"};
  }
};

Weights on_cpu(Weights weights) {
  for (auto& weight : weights) weight = weight.cpu();
  return weights;
}

template <typename Net, typename X, typename Options>
void expect_equal_to_one_process(const std::vector<std::string>& devices, const Options& options) {
  const auto alone = train_alone<Net, X>(options);
  MirroredStrategy strategy(devices);
  const auto together = train_mirrored<Net, X>(strategy, options);
  EXPECT_EQ(together[0][0].device().type(), torch::kCUDA);
  EXPECT_LT(relative_difference(on_cpu(together[0]), alone), 1e-6);
  for (const auto& weights : together) EXPECT_TRUE(is_same_bits(on_cpu(weights), on_cpu(together[0])));
}

TEST_F(Cuda, OneReplicaTrainsWhatTheCpuTrains) {
  expect_equal_to_one_process<Mlp, torch::optim::SGD>({"GPU:0"}, torch::optim::SGDOptions(0.05));
  expect_equal_to_one_process<Cnn, torch::optim::Adam>({"GPU:0"}, torch::optim::AdamOptions(1e-3));
  expect_equal_to_one_process<Embedder, torch::optim::SGD>({"GPU:0"}, torch::optim::SGDOptions(0.05));
}

TEST_F(Cuda, TwoReplicasShareOneGpu) {
  expect_equal_to_one_process<Mlp, torch::optim::SGD>(two_on_one_gpu(), torch::optim::SGDOptions(0.05));
  expect_equal_to_one_process<Cnn, torch::optim::Adam>(two_on_one_gpu(), torch::optim::AdamOptions(1e-3));
  expect_equal_to_one_process<Embedder, torch::optim::SGD>(two_on_one_gpu(), torch::optim::SGDOptions(0.05));
}

TEST_F(Cuda, AllGpusAreTheDefaultDevices) {
  MirroredStrategy strategy;
  EXPECT_EQ(strategy.num_replicas_in_sync(), static_cast<int>(list_physical_devices("GPU").size()));
  EXPECT_EQ(strategy.extended().worker_devices()[0], "/job:localhost/replica:0/task:0/device:GPU:0");
}

TEST_F(Cuda, CollectivesWorkBetweenReplicasOfOneGpu) {
  MirroredStrategy strategy(two_on_one_gpu());
  const auto sums = strategy.run([](ReplicaContext& context) {
    const auto device = context.torch_device();
    auto large = torch::full({1 << 20}, 1.0 + context.replica_id_in_sync_group(), torch::TensorOptions(device));
    const auto sum = context.all_reduce("sum", large);
    context.all_reduce_("sum", large);
    const auto all =
        context.all_gather(torch::full({1 + context.replica_id_in_sync_group()}, 7, torch::TensorOptions(device)), 0);
    return std::tuple(sum.mean(), large.mean(), all);
  });
  for (const auto& [sum, in_place, all] : sums) {
    EXPECT_EQ(sum.item<float>(), 3);
    EXPECT_EQ(in_place.item<float>(), 3);
    EXPECT_EQ(all.size(0), 3);
  }
}

TEST_F(Cuda, VariablesLiveOnTheReplicasDevice) {
  MirroredStrategy strategy(two_on_one_gpu());
  const auto scope = strategy.scope();
  Variable total(0.0, {.synchronization = VariableSynchronization::kOnRead, .aggregation = VariableAggregation::kSum});
  strategy.run([&](ReplicaContext& context) { total.assign_add(torch::full({}, 1.0 + context.replica_id_in_sync_group())); });
  EXPECT_TRUE(total.components()[1].is_cuda());
  EXPECT_EQ(total.value().item<float>(), 3);
}

TEST_F(Cuda, RandomNumbersOfReplicasAreReproducible) {
  const auto draw = [] {
    MirroredStrategy strategy(two_on_one_gpu(), {.seed = 4});
    return strategy.run(
        [](ReplicaContext& context) { return torch::rand({1000}, torch::TensorOptions(context.torch_device())).cpu(); });
  };
  const auto first = draw();
  const auto second = draw();
  EXPECT_TRUE(torch::equal(first[0], second[0]));
  EXPECT_TRUE(torch::equal(first[1], second[1]));
  EXPECT_FALSE(torch::equal(first[0], first[1]));
}

TEST_F(Cuda, AnExceptionInOneReplicaLeavesTheStrategyUsable) {
  MirroredStrategy strategy(two_on_one_gpu());
  const auto fail = [](ReplicaContext& context) {
    if (context.replica_id_in_sync_group() == 1) throw std::out_of_range("planted");
    context.all_reduce("sum", torch::ones({4}, torch::TensorOptions(context.torch_device())));
  };
  EXPECT_THROW(strategy.run(fail), std::out_of_range);
  const auto ones = strategy.run([](ReplicaContext& context) {
    return context.all_reduce("sum", torch::ones({}, torch::TensorOptions(context.torch_device())));
  });
  EXPECT_EQ(ones[1].item<float>(), 2);
}

}  // namespace
}  // namespace lockstep::testing

#include "tests/conformance/testing.h"
#include "tests/support/scratch_folder.h"

// Replicas that own several logical devices: the annotations, variables on one of them, and what is refused.

namespace lockstep::testing {
namespace {

// `replicas` with two logical devices each, as computation_shape [1, 1, 1, 2] divides a machine.
MirroredOptions pairs(int replicas) {
  return {.device_assignment = DeviceAssignment::build(Topology::of_devices(2 * replicas, 2),
                                                       {.computation_shape = {1, 1, 1, 2}, .num_replicas = replicas})};
}

MirroredOptions one_replica_of(int devices) {
  return {.device_assignment =
              DeviceAssignment::build(Topology::of_devices(devices, devices), {.computation_shape = {1, 1, 1, devices}})};
}

TEST(LogicalDevices, AReplicaOwnsTwoWithAComputationShapeOfTwoCores) {
  MirroredStrategy strategy(cpus(8), pairs(4));
  EXPECT_EQ(strategy.num_replicas_in_sync(), 4);
  EXPECT_EQ(strategy.extended().worker_devices().size(), 4u);
  EXPECT_EQ(strategy.replicas().logical_devices(3)->count(), 2);
}

TEST(LogicalDevices, VariablesOnTwoOfThemAreMultiplied) {
  for (const int n : {1, 2}) {
    MirroredStrategy strategy(cpus(2 * n), pairs(n));
    const auto scope = strategy.scope();
    const Variable v(2.0);
    const Variable w = [&] {
      const auto second = strategy.extended().experimental_logical_device(1);
      return Variable(3.0);
    }();
    const auto results = strategy.run(
        [&](ReplicaContext& context, const at::Tensor& x) {
          EXPECT_EQ(logical_parts(w)[0].logical_device, 1);
          const auto y = v * x;
          const auto z = y * w;
          EXPECT_EQ(logical_parts(z)[0].logical_device, 1);
          return z;
        },
        scalar(5));
    EXPECT_THAT(floats(results), ::testing::Each(30));
    EXPECT_EQ(strategy.reduce("sum", results).item<float>(), 30 * n);
  }
}

TEST(LogicalDevices, DoNotConcernCheckpoints) {
  MirroredStrategy strategy(cpus(2), pairs(1));
  const auto scope = strategy.scope();
  Variable v(2.0, {.name = "v"});
  const auto second = strategy.extended().experimental_logical_device(1);
  Variable w(3.0, {.name = "w"});
  const ScratchFolder folder;
  Checkpoint checkpoint;
  checkpoint.track("v", v).track("w", w);
  const auto product = [&] { return strategy.run([&](const at::Tensor& x) { return v * x * w; }, scalar(5)); };
  checkpoint.write(folder / "ckpt");
  v.assign(1);
  w.assign(4);
  EXPECT_THAT(floats(product()), ElementsAre(20));
  checkpoint.read(folder / "ckpt");
  EXPECT_THAT(floats(product()), ElementsAre(30));
}

TEST(LogicalDevices, ASplitIsCheckedBeforeItIsMade) {
  MirroredStrategy strategy(cpus(4), one_replica_of(4));
  const auto x = at::ones({4, 6});
  const auto split = [&](const std::vector<std::int64_t>& counts) {
    return code_of([&] { strategy.experimental_split_to_logical_devices(x, counts); });
  };
  EXPECT_EQ(split({4}), ErrorCode::kInvalidArgument);       // a number for each dimension
  EXPECT_EQ(split({1, 4}), ErrorCode::kInvalidArgument);    // 6 is not divided by 4
  EXPECT_EQ(split({2, 1}), ErrorCode::kInvalidArgument);    // 2 of 4 devices
  EXPECT_EQ(split({-1, -4}), ErrorCode::kInvalidArgument);  // negative
  EXPECT_EQ(split({2, 2}), std::nullopt);
  EXPECT_EQ(split({4, 1}), std::nullopt);
}

TEST(LogicalDevices, TilesAreOnDevicesRowByRow) {
  MirroredStrategy strategy(cpus(8), one_replica_of(8));
  const auto x = at::zeros({2, 128, 128, 3});
  const auto parts = logical_parts(strategy.experimental_split_to_logical_devices(x, {1, 2, 4, 1}));
  ASSERT_EQ(parts.size(), 8u);
  for (std::int64_t k = 0; k < 8; ++k) {
    const auto& part = parts[static_cast<std::size_t>(k)];
    EXPECT_EQ(part.logical_device, k);
    EXPECT_EQ(part.value.sizes(), (Ints{2, 64, 32, 3}));
    EXPECT_EQ(part.offset, (Ints{0, k / 4 * 64, k % 4 * 32, 0}));
  }
}

TEST(LogicalDevices, AnAssignedTensorKeepsItsValue) {
  MirroredStrategy strategy(cpus(4), pairs(2));
  const auto sums = strategy.run(
      [&](const at::Tensor& inputs) {
        const auto there = strategy.experimental_assign_to_logical_device(inputs + inputs, 1);
        const auto copies = strategy.experimental_replicate_to_logical_devices(there);
        EXPECT_EQ(logical_parts(copies).size(), 2u);
        return copies + there;
      },
      vec({1, 2}));
  EXPECT_THAT(floats(strategy.reduce("sum", sums)), ElementsAre(8, 16));
  for (const int id : {-1, 2})
    EXPECT_EQ(code_of([&] { strategy.run([&] { strategy.experimental_assign_to_logical_device(at::ones({2}), id); }); }),
              ErrorCode::kInvalidArgument);
  EXPECT_EQ(code_of([&] { strategy.extended().experimental_logical_device(2); }), ErrorCode::kInvalidArgument);
}

TEST(LogicalDevices, AreNotThereWithoutAnAssignment) {
  MirroredStrategy mirrored(cpus(1));
  OneDeviceStrategy one("CPU:0");
  for (Strategy* strategy : {static_cast<Strategy*>(&mirrored), static_cast<Strategy*>(&one), &default_strategy()}) {
    const auto x = at::ones({2});
    EXPECT_EQ(code_of([&] { strategy->experimental_assign_to_logical_device(x, 0); }), ErrorCode::kUnimplemented);
    EXPECT_EQ(code_of([&] { strategy->experimental_split_to_logical_devices(x, {1}); }), ErrorCode::kUnimplemented);
    EXPECT_EQ(code_of([&] { strategy->experimental_replicate_to_logical_devices(x); }), ErrorCode::kUnimplemented);
  }
}

TEST(LogicalDevices, MeanThoseOfAReplica) {
  MirroredStrategy strategy(cpus(4), pairs(2));
  EXPECT_EQ(code_of([&] { strategy.experimental_assign_to_logical_device(at::ones({2}), 0); }), ErrorCode::kFailedPrecondition);
}

TEST(LogicalDevices, AnAssignmentMustFitTheDevices) {
  EXPECT_EQ(code_of([] { MirroredStrategy(cpus(2), pairs(2)); }), ErrorCode::kInvalidArgument);
  auto options = pairs(1);
  options.replicas_per_device = 2;
  EXPECT_EQ(code_of([&] { MirroredStrategy(cpus(2), options); }), ErrorCode::kInvalidArgument);
}

TEST(LogicalDevices, SplitValuesAreCombinedOverReplicas) {
  MirroredStrategy strategy(cpus(4), pairs(2));
  const auto results = strategy.run([&](ReplicaContext& context) {
    const auto x =
        strategy.experimental_split_to_logical_devices(at::ones({4}) * (context.replica_id_in_sync_group() + 1), {2});
    EXPECT_THAT(floats(context.all_reduce("sum", x)), ElementsAre(3, 3, 3, 3));
    EXPECT_THAT(floats(context.all_gather(x, 0)), ElementsAre(1, 1, 1, 1, 2, 2, 2, 2));
    return x * 2;
  });
  EXPECT_THAT(floats(strategy.reduce("mean", results)), ElementsAre(3, 3, 3, 3));
  EXPECT_THAT(floats(strategy.gather(results, 0)), ElementsAre(2, 2, 2, 2, 4, 4, 4, 4));
}

// A user's own modules, unchanged, on images that are split over four devices: the weights are those of one device.
TEST(LogicalDevices, TrainAModelAsOneDeviceDoes) {
  const auto images = at::randn({4, 3, 16, 16}, at::kDouble);
  const auto train = [&](bool is_split) {
    torch::manual_seed(7);
    MirroredStrategy strategy(cpus(4), one_replica_of(4));
    const auto scope = strategy.scope();
    auto model = mirrored<torch::nn::Sequential>(torch::nn::Conv2d(torch::nn::Conv2dOptions(3, 8, 3).padding(1)),
                                                 torch::nn::BatchNorm2d(8), torch::nn::ReLU(), torch::nn::MaxPool2d(2),
                                                 torch::nn::Conv2d(torch::nn::Conv2dOptions(8, 4, 3).stride(2)),
                                                 torch::nn::Flatten(), torch::nn::Linear(36, 5));
    model->to(at::kDouble);
    auto optimizer = lockstep::optimizer<torch::optim::SGD>(model, 0.1);
    for (int step = 0; step < 3; ++step)
      strategy.run([&] {
        const auto x = is_split ? strategy.experimental_split_to_logical_devices(images, {1, 1, 2, 2}) : images;
        model->forward(x).square().mean().backward();
        optimizer.step();
      });
    std::vector<at::Tensor> weights;
    for (const auto& parameter : model->parameters()) weights.push_back(parameter.detach().flatten());
    return at::cat(weights);
  };
  EXPECT_TRUE(at::allclose(train(true), train(false), 1e-10, 1e-10));
}

}  // namespace
}  // namespace lockstep::testing

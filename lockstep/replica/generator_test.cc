#include "lockstep/replica/generator.h"

#include <ATen/ATen.h>
#include <gtest/gtest.h>

#include "lockstep/strategy/mirrored_strategy.h"

namespace lockstep {
namespace {

PerReplica<at::Tensor> draw(Strategy& strategy) {
  return strategy.run([] {
    const auto dropped = at::dropout(at::ones({500}), 0.5, true);
    const auto order = at::randperm(500).to(at::kFloat);
    return at::cat({dropped, order, at::rand({500}), at::empty({500}).normal_(), at::randint(100, {500}).to(at::kFloat),
                    at::multinomial(at::ones({50}), 20).to(at::kFloat)});
  });
}

TEST(ReplicaGenerators, EqualSeedsGiveEqualBits) {
  MirroredStrategy first({"CPU:0", "CPU:1", "CPU:2"}, {.seed = 9});
  MirroredStrategy second({"CPU:0", "CPU:1", "CPU:2"}, {.seed = 9});
  MirroredStrategy other({"CPU:0", "CPU:1", "CPU:2"}, {.seed = 10});
  for (int round = 0; round < 20; ++round) {
    const auto a = draw(first);
    const auto b = draw(second);
    const auto c = draw(other);
    for (std::size_t r = 0; r < 3; ++r) {
      EXPECT_TRUE(at::equal(a[r], b[r]));
      EXPECT_FALSE(at::equal(a[r], c[r]));
    }
    EXPECT_FALSE(at::equal(a[0], a[1]));
  }
}

TEST(ReplicaGenerators, AreNotDisturbedByDrawsOutside) {
  MirroredStrategy first({"CPU:0", "CPU:1"}, {.seed = 9});
  MirroredStrategy second({"CPU:0", "CPU:1"}, {.seed = 9});
  draw(first);
  draw(second);
  at::rand({1000});
  EXPECT_TRUE(at::equal(draw(first)[1], draw(second)[1]));
}

TEST(ReplicaGenerators, GoOnFromASavedState) {
  MirroredStrategy strategy({"CPU:0", "CPU:1"}, {.seed = 9});
  draw(strategy);
  const auto state = strategy.replicas().generator_state(1);
  const auto expected = draw(strategy)[1];
  EXPECT_FALSE(at::equal(draw(strategy)[1], expected));
  strategy.replicas().set_generator_state(1, state);
  EXPECT_TRUE(at::equal(draw(strategy)[1], expected));
}

TEST(ReplicaGenerators, StartFromLibTorchsSeedWhenNoneIsGiven) {
  const auto with_seed = [](std::uint64_t seed) {
    at::manual_seed(seed);
    MirroredStrategy strategy({"CPU:0", "CPU:1"});
    return draw(strategy)[1];
  };
  EXPECT_TRUE(at::equal(with_seed(3), with_seed(3)));
  EXPECT_FALSE(at::equal(with_seed(3), with_seed(4)));
}

}  // namespace
}  // namespace lockstep

#include <ATen/CPUGeneratorImpl.h>

#include "tests/conformance/testing.h"

// Random numbers under a strategy.

namespace lockstep::testing {
namespace {

constexpr std::int64_t kBlock = 16;

// Two blocks of random numbers in every replica, replica by replica.
std::vector<at::Tensor> draw_twice(Strategy& strategy, const std::function<at::Tensor()>& draw) {
  std::vector<at::Tensor> blocks;
  for (const auto& of_replica : strategy.run([&] { return std::vector<at::Tensor>{draw(), draw()}; }))
    blocks.insert(blocks.end(), of_replica.begin(), of_replica.end());
  return blocks;
}

void expect_all_different(const std::vector<at::Tensor>& blocks) {
  for (std::size_t i = 0; i < blocks.size(); ++i)
    for (std::size_t k = 0; k < i; ++k) EXPECT_FALSE(at::equal(blocks[i], blocks[k])) << i << " and " << k;
}

TEST(RandomNumbers, OfOneSharedGeneratorNeverRepeat) {
  MirroredStrategy strategy(cpus(2));
  const auto generator = at::detail::createCPUGenerator(1234);
  expect_all_different(draw_twice(strategy, [&] { return at::rand({kBlock}, generator); }));
}

TEST(RandomNumbers, OfTheStrategyDifferBetweenReplicas) {
  MirroredStrategy strategy(cpus(2), {.seed = 5});
  const auto draw = [] { return at::rand({kBlock}); };
  const auto blocks = draw_twice(strategy, draw);
  expect_all_different(blocks);
  MirroredStrategy same(cpus(2), {.seed = 5});
  const auto again = draw_twice(same, draw);
  for (std::size_t i = 0; i < blocks.size(); ++i) EXPECT_TRUE(at::equal(blocks[i], again[i]));
}

TEST(RandomNumbers, ContinueOnAnotherNumberOfReplicas) {
  const auto draw = [](Strategy& strategy) { return strategy.run([] { return at::rand({kBlock}); }); };
  for (const auto& [before, after] : {std::pair(2, 3), std::pair(3, 2)}) {
    MirroredStrategy saved(cpus(before), {.seed = 5});
    draw(saved);
    MirroredStrategy restored(cpus(after), {.seed = 6});
    for (int replica = 0; replica < std::min(before, after); ++replica)
      restored.replicas().set_generator_state(replica, saved.replicas().generator_state(replica));
    const auto expected = draw(saved);
    const auto continued = draw(restored);
    for (std::size_t replica = 0; replica < static_cast<std::size_t>(std::min(before, after)); ++replica)
      EXPECT_TRUE(at::equal(continued[replica], expected[replica]));
    expect_all_different(continued.values());
  }
}

}  // namespace
}  // namespace lockstep::testing

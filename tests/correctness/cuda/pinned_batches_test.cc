#include <lockstep/lockstep.h>

#include <atomic>

#include "tests/support/testing.h"

// Batches that go to a GPU are made where it reads them.

namespace lockstep::testing {
namespace {

using data::Dataset;

TEST(CudaInput, BatchesAreMadeInPageLockedMemory) {
  MirroredStrategy strategy({"GPU:0"}, {.replicas_per_device = 2});
  const auto rows = torch::arange(40).view({20, 2});
  const auto add = [](torch::Tensor x) { return x + 1; };
  const Dataset batches[] = {Dataset::from_tensor_slices(rows).shuffle(20, 1).batch(6),
                             Dataset::from_tensor_slices(rows).map(add).batch(6), Dataset::range(20).batch(6),
                             Dataset::from_tensor_slices(rows).batch(6).prefetch()};
  for (const auto& dataset : batches) {
    std::atomic<int> pinned = 0, all = 0;
    const auto look = dataset.map([&](torch::Tensor batch) {
      ++all;
      if (batch.is_pinned()) ++pinned;
      return batch;
    });
    std::int64_t sum = 0;
    for (const auto& batch : strategy.experimental_distribute_dataset(look))
      for (const auto& part : batch) {
        EXPECT_TRUE(part[0].is_cuda());
        sum += part[0].sum().item<std::int64_t>();
      }
    EXPECT_GT(sum, 0);
    EXPECT_EQ(all, 4);
    EXPECT_GE(pinned, 3) << "all but the last, which may be smaller than its memory";
  }
}

}  // namespace
}  // namespace lockstep::testing

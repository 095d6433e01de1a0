#include <lockstep/lockstep.h>

#include "tests/support/testing.h"

// Steps that were made ahead and lie on the GPU belong to a position.

namespace lockstep::testing {
namespace {

using data::Dataset;

std::vector<std::int64_t> rows_of(const PerReplica<data::Element>& batch) {
  std::vector<std::int64_t> rows;
  for (const auto& part : batch) {
    EXPECT_TRUE(part[0].is_cuda());
    const auto values = part[0].cpu();
    rows.insert(rows.end(), values.data_ptr<std::int64_t>(), values.data_ptr<std::int64_t>() + values.numel());
  }
  return rows;
}

TEST(CudaInput, GoesOnFromAPositionWithStepsAhead) {
  for (const auto policy : {AutoShardPolicy::kData, AutoShardPolicy::kOff}) {
    MirroredStrategy strategy({"GPU:0"}, {.replicas_per_device = 2});
    const auto make = [&] {
      const auto dataset = Dataset::range(100).shuffle(20, 3).batch(6).with_options({policy});
      return strategy.experimental_distribute_dataset(dataset, {.experimental_per_replica_buffer_size = 3});
    };
    std::vector<std::vector<std::int64_t>> expected;
    for (const auto& batch : make()) expected.push_back(rows_of(batch));
    for (std::size_t stop = 0; stop <= expected.size(); ++stop) {
      std::vector<std::vector<std::int64_t>> seen;
      auto first = make().make_iterator();
      while (seen.size() < stop) seen.push_back(rows_of(first.get_next()));
      auto second = make().make_iterator();
      second.restore(first.save());
      while (const auto batch = second.next()) seen.push_back(rows_of(*batch));
      ASSERT_EQ(seen, expected) << "after " << stop;
    }
  }
}

}  // namespace
}  // namespace lockstep::testing

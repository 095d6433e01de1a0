#include "lockstep/data/device_feed.h"

#include "tests/support/data_testing.h"

namespace lockstep::data::internal {
namespace {

using testing::Ints;
using testing::ints;

const c10::Device kCpu(c10::DeviceType::CPU);
// Has no memory and needs no hardware: enough to see what is copied where.
const c10::Device kElsewhere(c10::DeviceType::Meta);

StepStream steps(const Dataset& dataset) { return open_split(dataset, {2, 0, 2}, SplitRule::kBalanced); }

TEST(DeviceFeed, LeavesCpuStepsAlone) {
  auto source = steps(Dataset::range(3).batch(3));
  const auto* before = source.get();
  const auto fed = feed_devices(std::move(source), {kCpu, kCpu}, 1);
  EXPECT_EQ(fed.get(), before);
}

TEST(DeviceFeed, CopiesEveryTensorToItsReplicasDevice) {
  const auto dataset = Dataset::zip({Dataset::range(3), Dataset::range(3)}).batch(3);
  const auto fed = feed_devices(steps(dataset), {kCpu, kElsewhere}, 0);
  Step step;
  ASSERT_TRUE(fed->next(step));
  hand_over(step);
  EXPECT_EQ(ints(step.parts[0][0]), (Ints{0, 1}));
  for (const auto& component : step.parts[1].components()) {
    EXPECT_EQ(component.tensor().device(), kElsewhere);
    EXPECT_EQ(component.tensor().sizes(), (at::IntArrayRef{1}));
  }
  EXPECT_FALSE(fed->next(step));
}

}  // namespace
}  // namespace lockstep::data::internal

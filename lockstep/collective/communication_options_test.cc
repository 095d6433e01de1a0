#include "lockstep/collective/communication_options.h"

#include <cmath>
#include <limits>

#include "tests/support/testing.h"

namespace lockstep {
namespace {

using ::testing::ElementsAre;
using testing::ThrowsCode;

TEST(CommunicationImplementation, IsNamedInAnyCase) {
  for (const char* name : {"AUTO", "auto", "Auto"})
    EXPECT_EQ(parse_communication_implementation(name), CommunicationImplementation::kAuto) << name;
  for (const char* name : {"RING", "ring"})
    EXPECT_EQ(parse_communication_implementation(name), CommunicationImplementation::kRing) << name;
  for (const char* name : {"NCCL", "nccl"})
    EXPECT_EQ(parse_communication_implementation(name), CommunicationImplementation::kNccl) << name;
}

TEST(CommunicationImplementation, AnotherNameIsRefused) {
  for (const char* name : {"", "gloo", "AUTO ", "kRing"})
    EXPECT_THAT([&] { parse_communication_implementation(name); },
                ThrowsCode(ErrorCode::kInvalidArgument, str("'", name, "'"), "AUTO, RING or NCCL"));
}

TEST(CommunicationOptions, TheDefaultIsValidAndMeansOnePackAndTheLongTimeout) {
  const CommunicationOptions options;
  EXPECT_NO_THROW(options.validate());
  EXPECT_EQ(options.bytes_per_pack, 0);
  EXPECT_FALSE(options.timeout_seconds.has_value());
  EXPECT_EQ(options.implementation, CommunicationImplementation::kAuto);
}

TEST(CommunicationOptions, FieldsOutOfRangeAreNamed) {
  EXPECT_THAT([] { CommunicationOptions{.bytes_per_pack = -1}.validate(); },
              ThrowsCode(ErrorCode::kInvalidArgument, "bytes_per_pack is -1"));
  EXPECT_THAT([] { CommunicationOptions{.timeout_seconds = -0.5}.validate(); },
              ThrowsCode(ErrorCode::kInvalidArgument, "timeout_seconds is -0.5"));
  EXPECT_THAT([] { CommunicationOptions{.timeout_seconds = std::nan("")}.validate(); },
              ThrowsCode(ErrorCode::kInvalidArgument, "timeout_seconds"));
}

TEST(CommunicationOptions, ATimeoutThatNoClockCanCountIsRefused) {
  for (const double seconds : {std::numeric_limits<double>::infinity(), 1e300, 1e10})
    EXPECT_THAT([&] { CommunicationOptions{.timeout_seconds = seconds}.validate(); },
                ThrowsCode(ErrorCode::kInvalidArgument, "timeout_seconds"));
  EXPECT_NO_THROW(CommunicationOptions{.timeout_seconds = 1e8}.validate());
}

TEST(CommunicationOptions, TheTimeoutAsADuration) {
  EXPECT_EQ(CommunicationOptions{}.timeout(), std::chrono::nanoseconds(0));
  EXPECT_EQ(CommunicationOptions{.timeout_seconds = 0.25}.timeout(), std::chrono::milliseconds(250));
  EXPECT_EQ(CommunicationOptions{.timeout_seconds = 7200.0}.timeout(), std::chrono::hours(2));
}

TEST(CommunicationOptions, ZeroIsAllowedEverywhere) {
  EXPECT_NO_THROW((CommunicationOptions{.bytes_per_pack = 0, .timeout_seconds = 0}.validate()));
}

TEST(CommunicationOptions, MergingTakesTheFieldsThatAreNotAtTheirDefault) {
  const CommunicationOptions base{50, 2.0, CommunicationImplementation::kRing};
  const auto same = base.merged_with({});
  EXPECT_EQ(same.bytes_per_pack, 50);
  EXPECT_EQ(same.timeout_seconds, 2.0);
  EXPECT_EQ(same.implementation, CommunicationImplementation::kRing);

  const auto all = base.merged_with({60, 3.0, CommunicationImplementation::kNccl});
  EXPECT_EQ(all.bytes_per_pack, 60);
  EXPECT_EQ(all.timeout_seconds, 3.0);
  EXPECT_EQ(all.implementation, CommunicationImplementation::kNccl);

  const auto one = base.merged_with({.timeout_seconds = 9.0});
  EXPECT_EQ(one.bytes_per_pack, 50);
  EXPECT_EQ(one.timeout_seconds, 9.0);
  EXPECT_EQ(one.implementation, CommunicationImplementation::kRing);
}

TEST(CommunicationOptions, ATimeoutOfZeroIsGivenAndWins) {
  EXPECT_EQ((CommunicationOptions{.timeout_seconds = 5.0}.merged_with({.timeout_seconds = 0.0}).timeout_seconds), 0.0);
}

TEST(GroupBySize, APackIsClosedOnlyWhenItIsLargerThanTheLimit) {
  EXPECT_THAT(group_by_size({100, 100, 1, 50}, 200), ElementsAre(3, 1));
  EXPECT_THAT(group_by_size({100, 101, 1, 50}, 200), ElementsAre(2, 2));
}

TEST(GroupBySize, TensorsLargerThanTheLimitEachGetAPack) {
  EXPECT_THAT(group_by_size({300, 300, 300}, 200), ElementsAre(1, 1, 1));
  EXPECT_THAT(group_by_size({300}, 0), ElementsAre(1));
}

TEST(GroupBySize, TensorsWithoutBytesJoinTheCurrentPack) {
  EXPECT_THAT(group_by_size({0, 0, 0}, 1), ElementsAre(3));
  EXPECT_THAT(group_by_size({}, 0), ElementsAre());
}

}  // namespace
}  // namespace lockstep

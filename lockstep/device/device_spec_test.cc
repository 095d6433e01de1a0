#include "lockstep/device/device_spec.h"

#include "tests/support/testing.h"

namespace lockstep {
namespace {

using testing::ThrowsCode;

constexpr const char* kFirstCpu = "/job:localhost/replica:0/task:0/device:CPU:0";

TEST(DeviceSpec, AllSpellingsMeanTheSameDevice) {
  for (const char* name : {"CPU:0",
                           "cpu:0",
                           "Cpu:0",
                           "/CPU:0",
                           "/cpu:0",
                           "/device:CPU:0",
                           "/device:cpu:0",
                           "device:CPU:0",
                           "CPU",
                           "/cpu",
                           "",
                           "/",
                           "//CPU:0/",
                           "/device:CPU:*",
                           "CPU:*",
                           "/job:localhost",
                           "/task:0/cpu:0",
                           "/replica:0/task:0",
                           "/device:CPU:0/task:0/replica:0/job:localhost",
                           kFirstCpu})
    EXPECT_EQ(canonicalize(name), kFirstCpu) << "'" << name << "'";
}

TEST(DeviceSpec, PartsMayBeAbsent) {
  EXPECT_EQ(DeviceSpec::parse(""), DeviceSpec());
  EXPECT_EQ(DeviceSpec::parse("GPU:3"), (DeviceSpec{.device_type = "GPU", .device_index = 3}));
  EXPECT_EQ(DeviceSpec::parse("GPU"), (DeviceSpec{.device_type = "GPU"}));
  EXPECT_EQ(DeviceSpec::parse("cuda:1"), (DeviceSpec{.device_type = "GPU", .device_index = 1}));
  EXPECT_EQ(DeviceSpec::parse("/job:worker/task:2"), (DeviceSpec{.job = "worker", .task = 2}));
  EXPECT_EQ(DeviceSpec::parse("/job:ps/replica:1/task:12/device:gpu:7"), (DeviceSpec{"ps", 1, 12, "GPU", 7}));
}

TEST(DeviceSpec, AStarIsAnyIndex) {
  EXPECT_EQ(DeviceSpec::parse("/device:GPU:*"), (DeviceSpec{.device_type = "GPU"}));
  EXPECT_EQ(DeviceSpec::parse("gpu:*"), (DeviceSpec{.device_type = "GPU"}));
}

TEST(DeviceSpec, KnowsTheShortNamesOfAllTypesAndTheLongFormOfAnyOther) {
  for (const char* type : {"CPU", "GPU", "TPU", "XLA_CPU", "XLA_GPU"})
    EXPECT_EQ(DeviceSpec::parse(str(type, ":1")), (DeviceSpec{.device_type = type, .device_index = 1}));
  EXPECT_EQ(DeviceSpec::parse("/device:npu:1"), (DeviceSpec{.device_type = "NPU", .device_index = 1}));
}

TEST(DeviceSpec, BlanksAroundANumberDoNotMatter) {
  EXPECT_EQ(DeviceSpec::parse("CPU: 1 "), (DeviceSpec{.device_type = "CPU", .device_index = 1}));
}

TEST(DeviceSpec, WhatIsNotUnderstoodIsNamed) {
  for (const char* name : {"NPU:0", "/job", "/job:a:b", "/tasks:0", "device:CPU", "/device:CPU:0:1", "CPU:0:1", "/job:a/what"})
    EXPECT_THAT([&] { DeviceSpec::parse(name); }, ThrowsCode(ErrorCode::kInvalidArgument, name, "is not understood"));
}

TEST(DeviceSpec, AnIndexMustBeANumber) {
  for (const char* name : {"CPU:x", "CPU:", "CPU: ", "CPU:1x", "CPU:1.5", "/task:zero", "/replica:", "/device:GPU:one",
                           "CPU:99999999999999999999"})
    EXPECT_THAT([&] { DeviceSpec::parse(name); }, ThrowsCode(ErrorCode::kInvalidArgument, name, "is not a number"));
}

TEST(DeviceSpec, OneTypeIsEnough) {
  EXPECT_THAT([] { DeviceSpec::parse("/CPU:0/GPU:0"); }, ThrowsCode(ErrorCode::kInvalidArgument, "two device types"));
  EXPECT_THAT([] { DeviceSpec::parse("/device:CPU:0/cpu:0"); }, ThrowsCode(ErrorCode::kInvalidArgument, "two device types"));
}

TEST(DeviceSpec, WritesOnlyTheFieldsThatAreThere) {
  EXPECT_EQ(DeviceSpec().to_string(), "");
  EXPECT_EQ((DeviceSpec{.job = "worker", .task = 2}.to_string()), "/job:worker/task:2");
  EXPECT_EQ((DeviceSpec{.device_type = "gpu"}.to_string()), "/device:GPU:*");
  EXPECT_EQ((DeviceSpec{"ps", 1, 2, "GPU", 3}.to_string()), "/job:ps/replica:1/task:2/device:GPU:3");
}

TEST(DeviceSpec, WhatIsWrittenCanBeRead) {
  for (const auto& spec : {DeviceSpec{}, DeviceSpec{.job = "chief"}, DeviceSpec{.replica = 4}, DeviceSpec{.device_type = "TPU"},
                           DeviceSpec{"worker", 0, 11, "XLA_GPU", 9}})
    EXPECT_EQ(DeviceSpec::parse(spec.to_string()), spec) << spec.to_string();
}

TEST(DeviceSpec, MergingTakesEveryFieldThatTheOtherHas) {
  const DeviceSpec base{"worker", 1, 2, "GPU", 3};
  EXPECT_EQ(base.merged_with({}), base);
  EXPECT_EQ(DeviceSpec().merged_with(base), base);
  EXPECT_EQ(base.merged_with({"ps", 4, 5, "CPU", 6}), (DeviceSpec{"ps", 4, 5, "CPU", 6}));
  EXPECT_EQ(base.merged_with({.task = 9}), (DeviceSpec{"worker", 1, 9, "GPU", 3}));
}

TEST(Canonicalize, FillsAbsentFieldsFromTheDefaultsFirst) {
  EXPECT_EQ(canonicalize("GPU:1", "/job:worker/task:3"), "/job:worker/replica:0/task:3/device:GPU:1");
  EXPECT_EQ(canonicalize("/task:1", "/job:worker/task:3/GPU:2"), "/job:worker/replica:0/task:1/device:GPU:2");
  EXPECT_EQ(canonicalize("", "/cpu:5"), "/job:localhost/replica:0/task:0/device:CPU:5");
}

TEST(Canonicalize, ChangesNothingTheSecondTime) {
  for (const char* name : {"gpu:3", "/job:ps/task:1", "", "XLA_CPU:2"})
    EXPECT_EQ(canonicalize(canonicalize(name)), canonicalize(name)) << name;
}

TEST(Canonicalize, RefusesWhatCannotBeParsedOnBothSides) {
  EXPECT_THAT([] { canonicalize("disk:0"); }, ThrowsCode(ErrorCode::kInvalidArgument, "disk:0"));
  EXPECT_THAT([] { canonicalize("CPU:0", "disk:0"); }, ThrowsCode(ErrorCode::kInvalidArgument, "disk:0"));
}

}  // namespace
}  // namespace lockstep

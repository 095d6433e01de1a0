#include "lockstep/device/devices.h"

#include "lockstep/device/device_spec.h"
#include "tests/support/testing.h"

namespace lockstep {
namespace {

using testing::code_of;
using testing::cpus;
using ::testing::ElementsAre;
using ::testing::IsEmpty;
using testing::ThrowsCode;

class Devices : public ::testing::Test {
 protected:
  void SetUp() override { reset_logical_device_configuration(); }
  void TearDown() override { reset_logical_device_configuration(); }

  static std::vector<std::string> canonical(const std::vector<std::string>& names) {
    std::vector<std::string> all;
    for (const auto& name : names) all.push_back(canonicalize(name));
    return all;
  }
};

TEST_F(Devices, ThereIsOnePhysicalCpuAndItComesFirst) {
  EXPECT_THAT(list_physical_devices("CPU"), ElementsAre("CPU:0"));
  EXPECT_EQ(list_physical_devices().front(), "CPU:0");
  EXPECT_EQ(list_physical_devices().size(), 1 + list_physical_devices("GPU").size());
}

TEST_F(Devices, AnUnknownTypeHasNoDevices) {
  EXPECT_THAT(list_physical_devices("TPU"), IsEmpty());
  EXPECT_THAT(list_logical_devices("TPU"), IsEmpty());
}

TEST_F(Devices, WithoutDivisionEveryPieceOfHardwareIsOneLogicalDevice) {
  EXPECT_EQ(list_logical_devices(), canonical(list_physical_devices()));
  EXPECT_THAT(list_logical_devices("CPU"), ElementsAre("/job:localhost/replica:0/task:0/device:CPU:0"));
}

TEST_F(Devices, WithoutDivisionTheCpuIsAsManyAsAreNamed) {
  for (const int index : {0, 1, 17, 4095}) {
    const auto device = find_logical_device(str("CPU:", index));
    EXPECT_EQ(device.name, canonicalize(str("CPU:", index)));
    EXPECT_EQ(device.type, "CPU");
    EXPECT_EQ(device.index, index);
    EXPECT_EQ(device.physical_index, 0);
  }
}

TEST_F(Devices, AreFoundInAnySpelling) {
  for (const char* name : {"CPU:1", "/cpu:1", "/device:CPU:1", "/job:localhost/replica:0/task:0/device:CPU:1"})
    EXPECT_EQ(find_logical_device(name).name, canonicalize("CPU:1")) << name;
  EXPECT_EQ(find_logical_device("").name, canonicalize("CPU:0"));
}

TEST_F(Devices, DividingTheCpuFixesHowManyThereAre) {
  set_logical_device_configuration("CPU:0", 3);
  EXPECT_EQ(list_logical_devices("CPU"), canonical(cpus(3)));
  EXPECT_EQ(find_logical_device("CPU:2").physical_index, 0);
  EXPECT_THAT([] { find_logical_device("CPU:3"); },
              ThrowsCode(ErrorCode::kInvalidArgument, "CPU:3", "CPU:0, CPU:1, CPU:2", "set_logical_device_configuration"));
}

TEST_F(Devices, DividingDoesNotChangeTheHardware) {
  const auto before = list_physical_devices();
  set_logical_device_configuration("CPU:0", 4);
  EXPECT_EQ(list_physical_devices(), before);
}

TEST_F(Devices, TheLastDivisionCounts) {
  set_logical_device_configuration("/cpu:0", 4);
  set_logical_device_configuration("CPU", 2);
  EXPECT_EQ(list_logical_devices("CPU"), canonical(cpus(2)));
  reset_logical_device_configuration();
  EXPECT_EQ(list_logical_devices("CPU"), canonical(cpus(1)));
  EXPECT_EQ(find_logical_device("CPU:7").index, 7);
}

TEST_F(Devices, HardwareThatIsNotThereCannotBeDivided) {
  for (const char* name : {"CPU:1", "CPU:-1", "GPU:99", "TPU:0"})
    EXPECT_THAT([&] { set_logical_device_configuration(name, 2); },
                ThrowsCode(ErrorCode::kInvalidArgument, name, "there is no physical device", "CPU:0"));
  EXPECT_EQ(code_of([] { set_logical_device_configuration("disk", 2); }), ErrorCode::kInvalidArgument);
}

TEST_F(Devices, ADivisionHasAtLeastOnePart) {
  for (const int count : {0, -1})
    EXPECT_THAT([&] { set_logical_device_configuration("CPU:0", count); },
                ThrowsCode(ErrorCode::kInvalidArgument, str(count), "at least 1"));
  EXPECT_EQ(list_logical_devices("CPU"), canonical(cpus(1)));
}

TEST_F(Devices, WhatDoesNotExistIsNotFound) {
  for (const char* name : {"CPU:-1", "CPU:4096", "GPU:99", "TPU:0", "/device:NPU:0", "CPU:4294967296"})
    EXPECT_THAT([&] { find_logical_device(name); },
                ThrowsCode(ErrorCode::kInvalidArgument, name, "CPU:0", "any further CPU:k"));
  EXPECT_EQ(code_of([] { find_logical_device("disk:0"); }), ErrorCode::kInvalidArgument);
}

TEST_F(Devices, DevicesOfOtherProcessesAreNotFound) {
  EXPECT_THAT([] { find_logical_device("/job:worker/task:1/CPU:0"); },
              ThrowsCode(ErrorCode::kInvalidArgument, "job 'worker'", "not to this process"));
  for (const char* name : {"/task:1/CPU:0", "/replica:1/CPU:0", "/job:localhost/task:2"})
    EXPECT_THAT([&] { find_logical_device(name); }, ThrowsCode(ErrorCode::kInvalidArgument, name, "not to this process"));
}

}  // namespace
}  // namespace lockstep

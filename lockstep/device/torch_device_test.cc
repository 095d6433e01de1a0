#include "lockstep/device/torch_device.h"

#include <gtest/gtest.h>

namespace lockstep {
namespace {

TEST(TorchDevice, AllLogicalCpusShareTheCpu) {
  for (const int index : {0, 3})
    EXPECT_EQ(torch_device({.type = "CPU", .index = index}), c10::Device(c10::DeviceType::CPU)) << index;
}

TEST(TorchDevice, PartsOfOneGpuLieOnTheHardware) {
  EXPECT_EQ(torch_device({.type = "GPU", .index = 5, .physical_index = 1}), c10::Device(c10::DeviceType::CUDA, 1));
}

TEST(CountDevices, ThereIsOneCpuAndNoneOfAnAbsentType) {
  EXPECT_EQ(count_devices(c10::DeviceType::CPU), 1);
  EXPECT_EQ(count_devices(c10::DeviceType::FPGA), 0);
  EXPECT_EQ(count_devices(c10::DeviceType::CUDA), static_cast<int>(list_physical_devices("GPU").size()));
}

}  // namespace
}  // namespace lockstep

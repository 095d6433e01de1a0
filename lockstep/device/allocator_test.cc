#include "lockstep/device/allocator.h"

#include <ATen/ATen.h>
#include <c10/core/CPUAllocator.h>

#include <cstdlib>

#include "tests/support/testing.h"

namespace lockstep {
namespace {

using ::testing::ExitedWithCode;

// It is done once a process, so each case is seen from a process of its own, which says by its exit status whether
// LibTorch's allocator was replaced.
class KeepFreedMemory : public ::testing::Test {
 protected:
  void SetUp() override { GTEST_FLAG_SET(death_test_style, "threadsafe"); }

  static constexpr int kKept = 10;
  static constexpr int kReplaced = 11;

  [[noreturn]] static void keep_and_exit(const char* choice) {
    if (choice == nullptr) unsetenv("LOCKSTEP_MALLOC");
    else setenv("LOCKSTEP_MALLOC", choice, 1);
    const auto* before = c10::GetCPUAllocator();
    keep_freed_memory();
    keep_freed_memory();
    const bool works = at::ones({100000}).sum().item<float>() == 100000;
    std::_Exit(!works ? 1 : c10::GetCPUAllocator() == before ? kKept : kReplaced);
  }
};

TEST_F(KeepFreedMemory, TakesTensorsFromMalloc) { EXPECT_EXIT(keep_and_exit(nullptr), ExitedWithCode(kReplaced), ""); }

TEST_F(KeepFreedMemory, LeavesEverythingAloneWhenTheEnvironmentSaysSystem) {
  EXPECT_EXIT(keep_and_exit("system"), ExitedWithCode(kKept), "");
}

TEST_F(KeepFreedMemory, AnotherWordInTheEnvironmentChangesNothing) {
  EXPECT_EXIT(keep_and_exit("glibc"), ExitedWithCode(kReplaced), "");
}

}  // namespace
}  // namespace lockstep

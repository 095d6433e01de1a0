#include "lockstep/device/tensor_allocator.h"

#include <ATen/ATen.h>
#include <c10/core/CPUAllocator.h>

#include <cstdint>
#include <cstring>

#include "tests/support/testing.h"

namespace lockstep {
namespace {

using ::testing::HasSubstr;
using testing::on_threads;
using ::testing::ThrowsMessage;

// Sizes no machine has. A sanitizer ends the process when malloc is asked for the last one.
std::vector<std::size_t> absurd_sizes() {
  std::vector<std::size_t> sizes = {SIZE_MAX, SIZE_MAX - 71, PTRDIFF_MAX, PTRDIFF_MAX - 72};
#if !defined(__SANITIZE_ADDRESS__) && !defined(__SANITIZE_THREAD__)
  sizes.push_back(std::size_t{1} << 60);
#endif
  return sizes;
}

class TensorAllocator : public ::testing::Test {
 protected:
  TensorAllocator() : before_(c10::GetCPUAllocator()) { allocate_tensors_with_malloc(); }
  ~TensorAllocator() override { c10::SetCPUAllocator(before_); }

  c10::Allocator& allocator() const { return *c10::GetCPUAllocator(); }

 private:
  c10::Allocator* before_;
};

bool is_aligned(const void* address) { return reinterpret_cast<std::uintptr_t>(address) % 64 == 0; }

TEST_F(TensorAllocator, MemoryOfAnySizeIsAlignedAndWholeToTheLastByte) {
  std::vector<c10::DataPtr> held;
  for (const std::size_t bytes : {1, 7, 8, 63, 64, 65, 100, 1000, 4096, 70001, 5000000}) {
    for (int k = 0; k < 5; ++k) {
      held.push_back(allocator().allocate(bytes));
      ASSERT_TRUE(is_aligned(held.back().get())) << bytes;
      std::memset(held.back().get(), k, bytes);
    }
  }
  held.clear();
}

TEST_F(TensorAllocator, BlocksThatAreHeldDoNotOverlap) {
  std::vector<at::Tensor> tensors;
  for (int k = 0; k < 200; ++k) tensors.push_back(at::full({1 + k % 40}, k, at::kInt));
  for (int k = 0; k < 200; k += 2) tensors[static_cast<std::size_t>(k)].reset();
  for (int k = 0; k < 200; k += 2) tensors[static_cast<std::size_t>(k)] = at::full({1 + k % 40}, k, at::kInt);
  for (int k = 0; k < 200; ++k)
    EXPECT_TRUE(at::equal(tensors[static_cast<std::size_t>(k)], at::full({1 + k % 40}, k, at::kInt))) << k;
}

TEST_F(TensorAllocator, NoBytesAreNoMemory) {
  const auto nothing = allocator().allocate(0);
  EXPECT_EQ(nothing.get(), nullptr);
  EXPECT_EQ(nothing.device(), c10::Device(c10::kCPU));
  const auto empty = at::empty({0, 5});
  EXPECT_EQ(empty.numel(), 0);
  EXPECT_EQ((empty + 1).sum().item<float>(), 0);
}

TEST_F(TensorAllocator, RawMemoryIsFreedByTheRawDeleter) {
  void* data = allocator().raw_allocate(100);
  ASSERT_NE(data, nullptr);
  EXPECT_TRUE(is_aligned(data));
  std::memset(data, 1, 100);
  allocator().raw_deallocate(data);
  EXPECT_EQ(allocator().raw_allocate(0), nullptr);
  allocator().raw_deallocate(nullptr);
}

TEST_F(TensorAllocator, AnAbsurdSizeIsRefusedAndLaterTensorsAreMade) {
  for (const auto bytes : absurd_sizes())
    EXPECT_THAT([&] { allocator().allocate(bytes); },
                ThrowsMessage<c10::Error>(HasSubstr(str("no memory for a tensor of ", bytes, " bytes"))));
  EXPECT_THAT([] { at::empty({INT64_MAX}, at::kByte); }, ThrowsMessage<c10::Error>(HasSubstr("no memory for a tensor")));
  EXPECT_EQ(at::ones({1000}).sum().item<float>(), 1000);
}

TEST_F(TensorAllocator, TensorsMadeBeforeAndAfterTheSwitchLiveSideBySide) {
  c10::SetCPUAllocator(c10::GetDefaultCPUAllocator());
  auto old = at::ones({1000});
  allocate_tensors_with_malloc();
  auto fresh = at::ones({1000});
  EXPECT_EQ((old + fresh).sum().item<float>(), 2000);
  old.resize_({5000}).fill_(1);  // grows into the new memory
  fresh.resize_({5000}).fill_(2);
  EXPECT_EQ((old * fresh).sum().item<float>(), 10000);
  auto moved = old;
  old.reset();
  c10::SetCPUAllocator(c10::GetDefaultCPUAllocator());
  fresh.resize_({9000}).fill_(3);  // and back
  EXPECT_EQ(moved.sum().item<float>(), 5000);
  EXPECT_EQ(fresh.sum().item<float>(), 27000);
}

TEST_F(TensorAllocator, SwitchingTwiceKeepsTheAllocator) {
  const auto* first = c10::GetCPUAllocator();
  allocate_tensors_with_malloc();
  EXPECT_EQ(c10::GetCPUAllocator(), first);
}

TEST_F(TensorAllocator, ATensorMayEndOnAnotherThread) {
  constexpr int kThreads = 4;
  std::vector<std::vector<at::Tensor>> made(kThreads);
  on_threads(kThreads, [&](int thread) {
    for (int k = 0; k < 100; ++k) made[static_cast<std::size_t>(thread)].push_back(at::full({1 + 37 * k}, thread + 1));
  });
  std::vector<double> sums(kThreads);
  on_threads(kThreads, [&](int thread) {
    auto& theirs = made[static_cast<std::size_t>((thread + 1) % kThreads)];
    for (const auto& tensor : theirs) sums[static_cast<std::size_t>(thread)] += tensor.to(at::kDouble).mean().item<double>();
    theirs.clear();
  });
  EXPECT_THAT(sums, ::testing::ElementsAre(200, 300, 400, 100));
}

}  // namespace
}  // namespace lockstep

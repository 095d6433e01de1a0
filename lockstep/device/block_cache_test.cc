#include "lockstep/device/block_cache.h"

#include <cstdint>
#include <cstring>
#include <set>
#include <thread>

#include "tests/support/testing.h"

namespace lockstep {
namespace {

#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
constexpr bool kKeeps = false;
#else
constexpr bool kKeeps = true;
#endif

// On a thread of its own, whose cache is empty.
void on_a_fresh_thread(const std::function<void()>& body) { std::jthread thread(body); }

TEST(BlockCache, EverySizeIsAlignedAndWholeToTheLastByte) {
  std::vector<void*> blocks;
  for (std::size_t bytes = 1; bytes < (3 << 20); bytes += 1 + bytes / 7) {
    void* data = allocate_block(bytes);
    ASSERT_NE(data, nullptr);
    EXPECT_EQ(reinterpret_cast<std::uintptr_t>(data) % 64, 0) << bytes;
    std::memset(data, 1, bytes);  // a sanitizer sees a block that is too small
    blocks.push_back(data);
  }
  EXPECT_EQ(std::set<void*>(blocks.begin(), blocks.end()).size(), blocks.size());
  for (void* data : blocks) free_block(data);
}

TEST(BlockCache, ABlockThatWasFreedIsTheNextOfItsSize) {
  on_a_fresh_thread([] {
    void* first = allocate_block(5000);
    free_block(first);
    EXPECT_EQ(kept_block_bytes() > 0, kKeeps);
    if (!kKeeps) return;
    void* second = allocate_block(5001);  // the same class
    EXPECT_EQ(second, first);
    EXPECT_EQ(kept_block_bytes(), 0);
    free_block(second);
  });
}

TEST(BlockCache, ABlockIsAtMostAQuarterLargerThanAskedFor) {
  for (const std::size_t bytes : {256, 257, 320, 321, 511, 512, 513, 640, 1023, 1024, 1025, 65536, 65537, 1048575, 1048576})
    on_a_fresh_thread([bytes] {
      void* data = allocate_block(bytes);
      std::memset(data, 1, bytes);
      free_block(data);
      if (!kKeeps) return;
      EXPECT_GE(kept_block_bytes(), bytes);
      EXPECT_LE(kept_block_bytes(), bytes + bytes / 4) << bytes;
    });
}

TEST(BlockCache, LargeBlocksAreNotKept) {
  on_a_fresh_thread([] {
    free_block(allocate_block((1 << 20) + 1));
    EXPECT_EQ(kept_block_bytes(), 0);
  });
}

TEST(BlockCache, AThreadKeepsALimitedAmount) {
  on_a_fresh_thread([] {
    std::vector<void*> blocks;
    for (int k = 0; k < 100; ++k) blocks.push_back(allocate_block(1 << 20));
    for (void* data : blocks) free_block(data);
    EXPECT_LE(kept_block_bytes(), std::size_t{32} << 20);
  });
}

TEST(BlockCache, BlocksMayBeFreedByAnotherThreadAndAfterTheirThreadHasEnded) {
  std::vector<void*> blocks;
  on_a_fresh_thread([&] {
    for (int k = 0; k < 1000; ++k) blocks.push_back(allocate_block(static_cast<std::size_t>(1 + 97 * k)));
    free_block(allocate_block(100));
  });
  on_a_fresh_thread([&] {
    for (std::size_t k = 0; k < blocks.size(); ++k) std::memset(blocks[k], 3, 1 + 97 * k);
    for (void* data : blocks) free_block(data);
  });
}

TEST(BlockCache, ALargeBlockFreedByAnotherThreadIsFoundAgainByTheOneThatAsks) {
  on_a_fresh_thread([] {
    void* first = allocate_block(400'000);
    const auto before = shared_block_bytes();
    on_a_fresh_thread([&] {
      free_block(first);
      EXPECT_EQ(kept_block_bytes(), 0);
      EXPECT_EQ(shared_block_bytes() > before, kKeeps);
    });
    if (!kKeeps) return;
    void* second = allocate_block(400'000);
    EXPECT_EQ(second, first);
    EXPECT_EQ(shared_block_bytes(), before);
    free_block(second);  // it is this thread's own again
    EXPECT_GE(kept_block_bytes(), 400'000);
  });
}

TEST(BlockCache, TheStoreOfAllThreadsIsLimited) {
  std::vector<void*> blocks;
  for (int k = 0; k < 100; ++k) blocks.push_back(allocate_block(1 << 20));
  on_a_fresh_thread([&] {
    for (void* data : blocks) free_block(data);
  });
  EXPECT_LE(shared_block_bytes(), std::size_t{32} << 20);
}

TEST(BlockCache, NothingAndTooMuch) {
  free_block(nullptr);
  EXPECT_EQ(allocate_block(SIZE_MAX), nullptr);
  EXPECT_EQ(allocate_block(PTRDIFF_MAX), nullptr);
}

}  // namespace
}  // namespace lockstep

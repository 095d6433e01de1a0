#include "lockstep/collective/shm_transport.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cstring>
#include <functional>
#include <numeric>
#include <thread>

#include "lockstep/base/str.h"
#include "tests/support/key_value_store.h"

namespace lockstep {
namespace {

using std::chrono::seconds;

// Every rank on a thread of its own: they see each other's memory through the blocks only.
void on_ranks(int size, const std::function<void(ShmTransport&)>& body) {
  testing::KeyValueStore store;
  std::vector<std::jthread> threads;
  for (int rank = 0; rank < size; ++rank)
    threads.emplace_back([&, rank] {
      ShmTransport transport(store.setup(rank, size));
      body(transport);
      transport.barrier();
    });
}

std::vector<std::byte> pattern(int seed, std::size_t bytes) {
  std::vector<std::byte> data(bytes);
  for (std::size_t i = 0; i < bytes; ++i) data[i] = static_cast<std::byte>((i * 31 + static_cast<std::size_t>(seed) * 7) % 251);
  return data;
}

class ShmTransportSizes : public ::testing::TestWithParam<int> {};

TEST_P(ShmTransportSizes, AllToAllBringsEveryPartOfAnySize) {
  on_ranks(GetParam(), [](ShmTransport& shm) {
    for (const std::size_t unit : {0UL, 1UL, 1000UL, 700'000UL}) {
      std::vector<std::vector<std::byte>> out, in;
      std::vector<ConstBytes> send;
      std::vector<Bytes> receive;
      for (int r = 0; r < shm.size(); ++r) {
        out.push_back(pattern(shm.rank() * 16 + r, unit * static_cast<std::size_t>(r + 1)));
        in.emplace_back(unit * static_cast<std::size_t>(shm.rank() + 1));
      }
      for (auto& data : out) send.emplace_back(data);
      for (auto& data : in) receive.emplace_back(data);
      shm.all_to_all(send, receive);
      for (int r = 0; r < shm.size(); ++r)
        if (r != shm.rank()) {
          EXPECT_EQ(in[static_cast<std::size_t>(r)],
                    pattern(r * 16 + shm.rank(), unit * static_cast<std::size_t>(shm.rank() + 1)));
        }
    }
  });
}

TEST_P(ShmTransportSizes, AllGatherAndBroadcastWorkForAnySize) {
  on_ranks(GetParam(), [](ShmTransport& shm) {
    for (const std::size_t unit : {0UL, 3UL, 1'500'000UL}) {
      std::vector<std::vector<std::byte>> data;
      std::vector<Bytes> parts;
      for (int r = 0; r < shm.size(); ++r) {
        const auto bytes = unit * static_cast<std::size_t>(r + 1);
        data.push_back(r == shm.rank() ? pattern(r, bytes) : std::vector<std::byte>(bytes));
      }
      for (auto& part : data) parts.emplace_back(part);
      shm.all_gather(parts);
      for (int r = 0; r < shm.size(); ++r)
        EXPECT_EQ(data[static_cast<std::size_t>(r)], pattern(r, unit * static_cast<std::size_t>(r + 1)));
      const int root = shm.size() - 1;
      auto value = shm.rank() == root ? pattern(99, unit) : std::vector<std::byte>(unit);
      shm.broadcast(value, root);
      EXPECT_EQ(value, pattern(99, unit));
    }
  });
}

TEST_P(ShmTransportSizes, SumsAreTheCanonicalOnesWhereverTheBuffersAre) {
  on_ranks(GetParam(), [](ShmTransport& shm) {
    for (const std::int64_t count : {1, 255, 5000, 400'000}) {
      const auto value = [](int r, std::int64_t i) { return static_cast<float>(r + 1) * 0.1f + static_cast<float>(i % 97); };
      std::vector<float> expected(static_cast<std::size_t>(count));
      for (std::int64_t i = 0; i < count; ++i) {
        std::vector<float> values;
        for (int r = 0; r < shm.size(); ++r) values.push_back(value(r, i));
        expected[static_cast<std::size_t>(i)] = tree_fold(values, std::plus<>());
      }
      std::vector<float> data(static_cast<std::size_t>(count));
      const auto blocks = shm.share(static_cast<std::size_t>(count) * 4);
      auto* shared = reinterpret_cast<float*>(blocks.data(shm.rank()));
      for (std::int64_t i = 0; i < count; ++i) data[static_cast<std::size_t>(i)] = shared[i] = value(shm.rank(), i);
      shm.all_reduce(SumType::kFloat, std::as_writable_bytes(std::span(data)));
      EXPECT_EQ(data, expected);
      shm.sum_shared(SumType::kFloat, blocks, 0, count);
      EXPECT_TRUE(std::equal(expected.begin(), expected.end(), shared));
      shm.barrier();
    }
  });
}

INSTANTIATE_TEST_SUITE_P(Ranks, ShmTransportSizes, ::testing::Values(1, 2, 3, 5));

TEST(ShmTransport, AbortEndsAWaitAtOnceAndEveryLaterCall) {
  testing::KeyValueStore store;
  std::optional<ShmTransport> peer;
  std::jthread other([&] { peer.emplace(store.setup(1, 2)); });
  ShmTransport shm(store.setup(0, 2));
  other.join();
  std::jthread killer([&] {
    std::this_thread::sleep_for(std::chrono::milliseconds(300));
    shm.abort(Error(ErrorCode::kUnavailable, "worker 1 is gone"));
  });
  const auto start = std::chrono::steady_clock::now();
  for (int attempt = 0; attempt < 2; ++attempt) {
    try {
      shm.barrier();
      FAIL();
    } catch (const Error& error) {
      EXPECT_EQ(error.code(), ErrorCode::kUnavailable);
      EXPECT_EQ(error.message(), "worker 1 is gone");
    }
  }
  EXPECT_LT(std::chrono::steady_clock::now() - start, seconds(5));
}

TEST(ShmTransport, ProcessesShareMemoryAndLeaveNothingBehind) {
  // The parent makes a block; the child opens it by its ticket, as another worker would.
  SharedBlock block(1 << 16);
  const auto ticket = block.ticket();
  const pid_t child = fork();
  ASSERT_GE(child, 0);
  if (child == 0) {
    int result = 1;
    try {
      const auto seen = SharedBlock::open(ticket);
      std::memcpy(seen.data() + 100, "hello", 6);
      result = 0;
    } catch (...) {
    }
    _exit(result);
  }
  int status = 0;
  ASSERT_EQ(waitpid(child, &status, 0), child);
  EXPECT_EQ(status, 0);
  EXPECT_STREQ(reinterpret_cast<const char*>(block.data() + 100), "hello");
  block.close_ticket();
  EXPECT_THROW(SharedBlock::open(ticket), Error);
  EXPECT_THROW(SharedBlock::open("nonsense"), Error);
}

}  // namespace
}  // namespace lockstep

#include "lockstep/collective/local_group.h"

#include <ATen/ATen.h>

#include <atomic>

#include "lockstep/collective/reduce_values.h"
#include "tests/support/testing.h"

namespace lockstep {
namespace {

using testing::code_of;
using testing::on_threads;

struct Members {
  explicit Members(int size) : rendezvous(size, "replica"), hub(rendezvous) {
    rendezvous.set_timeout(std::chrono::seconds(20));
  }
  Rendezvous rendezvous;
  LocalHub hub;
};

at::Tensor value_of(int rank, at::IntArrayRef shape, at::ScalarType dtype = at::kFloat) {
  auto generator = at::make_generator<at::CPUGeneratorImpl>(static_cast<std::uint64_t>(rank) + 1);
  return (at::rand(shape, generator, at::kFloat) * 100 - 50).to(dtype);
}

TEST(LocalGroup, KnowsRankAndSize) {
  Members members(3);
  for (int rank = 0; rank < 3; ++rank) {
    EXPECT_EQ(members.hub.group(rank).rank(), rank);
    EXPECT_EQ(members.hub.group(rank).size(), 3);
  }
}

// Small tensors belong to one rank whole, large ones are cut: both must give the bits of the canonical order.
TEST(LocalGroup, AllReduceGivesTheCanonicalSumToEverybody) {
  for (const int size : {1, 2, 3, 5, 8}) {
    for (const std::int64_t count : {0, 1, 17, 4096, 4097, 70001}) {
      for (const auto dtype : {at::kFloat, at::kDouble, at::kLong, at::kInt, at::kHalf, at::kBFloat16, at::kShort}) {
        std::vector<at::Tensor> inputs;
        for (int rank = 0; rank < size; ++rank) inputs.push_back(value_of(rank, {count}, dtype));
        const auto expected = sum_values(inputs);
        Members members(size);
        std::vector<at::Tensor> outputs(inputs.size());
        on_threads(size, [&](int rank) {
          const auto r = static_cast<std::size_t>(rank);
          outputs[r] = at::full_like(inputs[r], 99);
          members.hub.group(rank).all_reduce({&inputs[r], 1}, {&outputs[r], 1});
        });
        for (const auto& output : outputs) ASSERT_TRUE(at::equal(output, expected)) << size << " x " << count << " " << dtype;
      }
    }
  }
}

TEST(LocalGroup, AllReduceWorksInPlace) {
  for (const std::int64_t count : {5, 50000}) {
    Members members(3);
    std::vector<at::Tensor> values;
    for (int rank = 0; rank < 3; ++rank) values.push_back(value_of(rank, {count}));
    const auto expected = (values[0] + values[1]) + values[2];
    on_threads(3, [&](int rank) {
      auto& mine = values[static_cast<std::size_t>(rank)];
      members.hub.group(rank).all_reduce({&mine, 1}, {&mine, 1});
    });
    for (const auto& value : values) EXPECT_TRUE(at::equal(value, expected)) << count;
  }
}

TEST(LocalGroup, AllReduceTakesManyTensorsOfDifferentShapesAtOnce) {
  Members members(4);
  on_threads(4, [&](int rank) {
    std::vector<at::Tensor> mine = {value_of(rank, {3, 2}), value_of(rank, {}), value_of(rank, {20000}), value_of(rank, {0}),
                                    value_of(rank, {7}, at::kLong)};
    std::vector<at::Tensor> sums;
    for (const auto& tensor : mine) sums.push_back(at::empty_like(tensor));
    members.hub.group(rank).all_reduce(mine, sums);
    for (std::size_t k = 0; k < mine.size(); ++k) {
      std::vector<at::Tensor> all;
      for (int r = 0; r < 4; ++r) all.push_back(value_of(r, mine[k].sizes(), mine[k].scalar_type()));
      EXPECT_TRUE(at::equal(sums[k], sum_values(all))) << k;
    }
  });
}

TEST(LocalGroup, AllReduceOfNothingPasses) {
  Members members(2);
  on_threads(2, [&](int rank) { members.hub.group(rank).all_reduce({}, {}); });
  EXPECT_FALSE(members.rendezvous.is_broken());
}

TEST(LocalGroup, AllGatherHandsOverDifferentShapesInRankOrder) {
  Members members(3);
  on_threads(3, [&](int rank) {
    const auto all = members.hub.group(rank).all_gather(at::full({rank + 1}, rank));
    ASSERT_EQ(all.size(), 3u);
    for (int r = 0; r < 3; ++r) EXPECT_TRUE(at::equal(all[static_cast<std::size_t>(r)], at::full({r + 1}, r)));
  });
}

TEST(LocalGroup, AllGatherGivesCopiesOfTheOthersValues) {
  Members members(2);
  std::vector<at::Tensor> values = {at::zeros({4}), at::ones({4})};
  std::vector<std::vector<at::Tensor>> gathered(2);
  on_threads(2, [&](int rank) {
    gathered[static_cast<std::size_t>(rank)] = members.hub.group(rank).all_gather(values[static_cast<std::size_t>(rank)]);
  });
  values[1].fill_(5);
  EXPECT_TRUE(at::equal(gathered[0][1], at::ones({4})));
}

TEST(LocalGroup, BroadcastGivesRootsValueToEverybody) {
  for (int root = 0; root < 3; ++root) {
    Members members(3);
    on_threads(3, [&](int rank) {
      auto value = at::full({5}, rank * 10.0);
      members.hub.group(rank).broadcast(value, root);
      EXPECT_TRUE(at::equal(value, at::full({5}, root * 10.0)));
    });
  }
}

TEST(LocalGroup, CallsThatDifferNameEachOther) {
  Members members(2);
  std::atomic<int> named{0};
  on_threads(2, [&](int rank) {
    auto value = at::ones({2});
    try {
      if (rank == 0) members.hub.group(rank).all_gather(value);
      else members.hub.group(rank).broadcast(value, 0);
    } catch (const Error& error) {
      const std::string text = error.what();
      if (error.code() == ErrorCode::kFailedPrecondition && text.find("all_gather") != text.npos &&
          text.find("broadcast") != text.npos)
        ++named;
    }
  });
  EXPECT_EQ(named, 2);
}

struct Mismatch {
  const char* what;
  std::vector<at::Tensor> first;
  std::vector<at::Tensor> others;
};

// Everybody must see the same values when it compares, also when another rank is much faster.
TEST(LocalGroup, ValuesThatDoNotFitFailOnAllAndLeaveTheGroupUsable) {
  const std::vector<Mismatch> mismatches = {
      {"shape", {at::ones({3})}, {at::ones({4})}},
      {"dtype", {at::ones({3})}, {at::ones({3}, at::kDouble)}},
      {"count", {at::ones({3}), at::ones({3})}, {at::ones({3})}},
      {"second of two", {at::ones({3}), at::ones({5})}, {at::ones({3}), at::ones({1, 5})}},
  };
  constexpr int kSize = 4;
  Members members(kSize);
  std::atomic<int> failures{0};
  std::atomic<int> sums{0};
  on_threads(kSize, [&](int rank) {
    for (int round = 0; round < 200; ++round) {
      for (const auto& mismatch : mismatches) {
        if (members.rendezvous.is_broken()) return;
        const auto code = code_of([&] {
          // Fresh tensors, which are gone as soon as this rank has failed.
          std::vector<at::Tensor> inputs;
          for (const auto& tensor : rank == 0 ? mismatch.first : mismatch.others) inputs.push_back(tensor.clone());
          auto outputs = inputs;
          members.hub.group(rank).all_reduce(inputs, outputs);
        });
        if (code == ErrorCode::kInvalidArgument) ++failures;
        auto one = at::ones({2});
        if (!code_of([&] { members.hub.group(rank).all_reduce({&one, 1}, {&one, 1}); }) && at::equal(one, at::full({2}, kSize)))
          ++sums;
      }
    }
  });
  EXPECT_EQ(failures, kSize * 200 * 4);
  EXPECT_EQ(sums, kSize * 200 * 4);
}

TEST(LocalGroup, AbortReachesWaitersAndLaterCallers) {
  Members members(3);
  std::atomic<int> aborted{0};
  on_threads(3, [&](int rank) {
    if (rank == 2) return members.hub.group(rank).abort("out of memory");
    auto value = at::ones({2});
    if (code_of([&] { members.hub.group(rank).broadcast(value, 0); }) == ErrorCode::kAborted) ++aborted;
  });
  EXPECT_EQ(aborted, 2);
  EXPECT_EQ(code_of([&] { members.hub.group(2).barrier("later"); }), ErrorCode::kAborted);
}

TEST(ChunkOf, CoversEveryElementOnceInWholeCacheLines) {
  for (const std::int64_t bytes : {1, 2, 4, 8, 16, 128}) {
    for (const int size : {1, 2, 3, 5, 8, 16}) {
      for (const std::int64_t count : {0, 1, 15, 16, 17, 63, 64, 1000, 4099}) {
        std::int64_t next = 0;
        for (int rank = 0; rank < size; ++rank) {
          const auto [begin, end] = chunk_of(count, bytes, rank, size);
          ASSERT_EQ(begin, next);
          ASSERT_LE(begin, end);
          if (begin < count) {
            ASSERT_EQ(begin * bytes % 64, 0) << count << " x " << bytes << ", rank " << rank << "/" << size;
          }
          next = end;
        }
        ASSERT_EQ(next, count);
      }
    }
  }
}

TEST(ChunkOf, PartsAreEqualWithinACacheLine) {
  for (const int size : {2, 3, 7}) {
    std::int64_t least = 1 << 30;
    std::int64_t most = 0;
    for (int rank = 0; rank < size; ++rank) {
      const auto [begin, end] = chunk_of(160000, 4, rank, size);
      least = std::min(least, end - begin);
      most = std::max(most, end - begin);
    }
    EXPECT_LE(most - least, 16) << size;
  }
}

}  // namespace
}  // namespace lockstep

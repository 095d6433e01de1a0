#include "lockstep/collective/result_pool.h"

#include <ATen/ATen.h>
#include <c10/core/InferenceMode.h>

#include <set>

#include "tests/support/testing.h"

namespace lockstep {
namespace {

using testing::on_threads;
using ::testing::UnorderedElementsAreArray;

constexpr std::int64_t kSmall = 100;        // elements of float: not kept
constexpr std::int64_t kMedium = 64 << 10;  // 256 KB
constexpr std::int64_t kLarge = 2 << 20;    // 8 MB

at::Tensor result_of(std::int64_t elements) { return empty_result_like(at::empty({elements})); }

// A pool belongs to a thread: a test begins with an empty one.
class ResultPool : public ::testing::Test {
 protected:
  static void on_fresh_thread(const std::function<void()>& body) {
    on_threads(1, [&](int) { body(); });
  }
};

TEST_F(ResultPool, AResultIsLikeItsValue) {
  on_fresh_thread([] {
    for (const auto dtype : {at::kFloat, at::kDouble, at::kLong, at::kHalf, at::kBool})
      for (const auto elements : {std::int64_t{0}, std::int64_t{1}, kSmall, kMedium, kLarge}) {
        const auto value = at::zeros({elements, 2}, dtype).requires_grad_(dtype == at::kFloat);
        const auto result = empty_result_like(value);
        EXPECT_EQ(result.sizes(), value.sizes());
        EXPECT_EQ(result.scalar_type(), dtype);
        EXPECT_TRUE(result.is_contiguous());
        EXPECT_FALSE(result.is_same(value));
        EXPECT_FALSE(result.requires_grad());
        EXPECT_TRUE(elements == 0 || result.data_ptr() != value.data_ptr());
      }
  });
}

// Something else takes memory in between, so that an equal address can only come from the pool.
TEST_F(ResultPool, AResultThatNobodyHoldsIsTakenAgain) {
  for (const auto elements : {kMedium, kLarge})
    on_fresh_thread([elements] {
      auto first = result_of(elements);
      const auto* address = first.data_ptr();
      first.reset();
      const auto others = at::empty({elements});
      EXPECT_EQ(result_of(elements).data_ptr(), address);
      EXPECT_NE(others.data_ptr(), address);
    });
}

TEST_F(ResultPool, AResultThatIsHeldIsNotTakenAgain) {
  for (const auto elements : {kSmall, kMedium, kLarge})
    on_fresh_thread([elements] {
      std::vector<at::Tensor> held;
      for (int k = 0; k < 20; ++k) held.push_back(result_of(elements).fill_(k));
      for (int k = 0; k < 20; ++k) EXPECT_TRUE(held[static_cast<std::size_t>(k)].eq(k).all().item<bool>()) << k;
    });
}

TEST_F(ResultPool, AViewOrTheBareMemoryHoldsAResult) {
  on_fresh_thread([] {
    auto viewed = result_of(kMedium);
    const auto row = viewed.narrow(0, 5, 1).fill_(7);
    viewed.reset();
    auto stored = result_of(kMedium);
    const at::Storage storage = stored.storage();
    stored.reset();
    auto detached = result_of(kMedium);
    const auto other = detached.detach();
    detached.reset();
    for (int k = 0; k < 10; ++k) {
      const auto* address = result_of(kMedium).fill_(0).data_ptr();
      EXPECT_NE(address, storage.data());
      EXPECT_NE(address, other.data_ptr());
    }
    EXPECT_EQ(row.item<float>(), 7);
  });
}

TEST_F(ResultPool, AnotherShapeOrDtypeOfTheSameSizeIsStillLikeItsValue) {
  on_fresh_thread([] {
    result_of(kMedium);
    const auto half = result_of(kMedium / 2);
    EXPECT_EQ(half.numel(), kMedium / 2);
    EXPECT_EQ(half.storage().nbytes(), static_cast<std::size_t>(kMedium / 2 * 4));  // not the whole one's memory
    EXPECT_EQ(empty_result_like(at::empty({2, kMedium / 2})).dim(), 2);
    const auto integers = empty_result_like(at::empty({kMedium}, at::kInt));
    EXPECT_EQ(integers.scalar_type(), at::kInt);
  });
}

TEST_F(ResultPool, AResultHasTheMemoryOrderOfItsValue) {
  for (const std::int64_t side : {10, 200}) {
    on_fresh_thread([side] {
      const auto turned = at::empty({side, 2 * side}).t();
      for (int k = 0; k < 2; ++k) EXPECT_EQ(empty_result_like(turned).strides(), turned.strides());
      EXPECT_TRUE(empty_result_like(at::empty({2 * side, side})).is_contiguous());
      const auto repeated = at::empty({1}).expand({side, 2 * side});
      EXPECT_TRUE(empty_result_like(repeated).is_non_overlapping_and_dense());
    });
  }
}

TEST_F(ResultPool, EightMediumAndTwoLargeResultsAreKept) {
  for (const auto& [elements, kept] : {std::pair(kMedium, 8), std::pair(kLarge, 2)})
    on_fresh_thread([elements = elements, kept = kept] {
      std::vector<at::Tensor> held;
      for (int k = 0; k <= kept; ++k) held.push_back(result_of(elements));
      EXPECT_EQ(held[0].storage().use_count(), 1U);  // pushed out by the last
      std::set<const void*> addresses;
      for (int k = 1; k <= kept; ++k) addresses.insert(held[static_cast<std::size_t>(k)].data_ptr());
      held.resize(1);
      std::vector<const void*> again;
      for (int k = 0; k < kept; ++k) {
        held.push_back(result_of(elements));
        again.push_back(held.back().data_ptr());
      }
      EXPECT_THAT(again, UnorderedElementsAreArray(addresses));
    });
}

TEST_F(ResultPool, ThreadsDoNotShareTheirResults) {
  on_fresh_thread([] {
    const auto* address = result_of(kMedium).data_ptr();
    std::vector<const void*> theirs(4);
    on_threads(4, [&](int thread) { theirs[static_cast<std::size_t>(thread)] = result_of(kMedium).data_ptr(); });
    EXPECT_THAT(theirs, ::testing::Each(::testing::Ne(address)));
  });
}

TEST_F(ResultPool, AResultOutlivesItsThread) {
  at::Tensor result;
  on_fresh_thread([&] { result = result_of(kMedium).fill_(3); });
  EXPECT_TRUE(result.eq(3).all().item<bool>());
}

// Whatever its size, a result is a tensor of its own to autograd.
TEST_F(ResultPool, AResultMayBeDetachedInPlace) {
  for (const auto elements : {kSmall, kMedium, kLarge})
    on_fresh_thread([elements] { EXPECT_NO_THROW(result_of(elements).detach_()) << elements; });
}

TEST_F(ResultPool, ALaterResultKnowsNothingOfTheGraphThatAnEarlierOneWasPartOf) {
  on_fresh_thread([] {
    const auto weight = at::ones({kMedium}).requires_grad_();
    result_of(kMedium).fill_(1).mul_(weight);
    EXPECT_FALSE(result_of(kMedium).requires_grad());
  });
}

TEST_F(ResultPool, AResultOfInferenceModeIsNotTakenForTraining) {
  on_fresh_thread([] {
    {
      const c10::InferenceMode inference;
      result_of(kMedium);
    }
    EXPECT_FALSE(result_of(kMedium).is_inference());
  });
}

}  // namespace
}  // namespace lockstep

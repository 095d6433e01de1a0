#include "lockstep/data/prefetch.h"

#include <c10/core/GradMode.h>

#include <atomic>
#include <latch>
#include <stdexcept>

#include "lockstep/base/str.h"
#include "lockstep/data/dataset.h"
#include "lockstep/data/made_ahead.h"
#include "tests/support/data_testing.h"

namespace lockstep::data {
namespace {

using testing::code_of;
using testing::Ints;
using testing::numbers;
using testing::values;

TEST(Prefetch, GivesTheSameElementsInOrder) {
  for (const std::int64_t count : {0, 1, 3, 200}) EXPECT_EQ(values(Dataset::range(100).prefetch(count)), numbers(100));
  EXPECT_EQ(values(Dataset::range(5).prefetch(2).repeat(2)).size(), 10u);
  EXPECT_EQ(values(Dataset::range(10).prefetch(2).map([](at::Tensor x) { return x; }).prefetch(2)), numbers(10));
  EXPECT_EQ(values(Dataset::range(100).prefetch()), numbers(100));
  EXPECT_EQ(code_of([] { Dataset::range(5).prefetch(-2); }), ErrorCode::kInvalidArgument);
}

// Returns when the first element was taken and `count` more were made without anybody asking for them.
void wait_until_ahead(std::int64_t prefetch, int count) {
  std::latch are_made(count + 1);
  std::atomic<int> made{0};
  const auto dataset = Dataset::range(100)
                           .map([&](at::Tensor x) {
                             if (made.fetch_add(1) <= count) are_made.count_down();
                             return x;
                           })
                           .prefetch(prefetch);
  auto iterator = dataset.make_iterator();
  EXPECT_EQ(iterator.next()->operator[](0).item<std::int64_t>(), 0);  // the thread begins with the first element
  are_made.wait();
}

TEST(Prefetch, MakesElementsAhead) { wait_until_ahead(3, 3); }

TEST(Prefetch, MakesSeveralSmallElementsAheadByItself) { wait_until_ahead(kAutotune, 7); }

TEST(Prefetch, IsAddedOnlyToWhatIsNotMadeAheadAlready) {
  const auto text = [](const Dataset& dataset) { return lockstep::str(internal::made_ahead(dataset)); };
  const auto plain = Dataset::range(5).batch(2);
  EXPECT_EQ(text(plain), lockstep::str(plain.prefetch()));
  EXPECT_EQ(text(plain.prefetch(0)), lockstep::str(plain.prefetch(0).prefetch()));
  EXPECT_EQ(text(plain.prefetch(3)), lockstep::str(plain.prefetch(3)));
  EXPECT_EQ(text(plain.prefetch().with_options({})), lockstep::str(plain.prefetch().with_options({})));
  EXPECT_EQ(text(plain.prefetch().take(1)), lockstep::str(plain.prefetch().take(1).prefetch()));
}

TEST(Prefetch, ErrorsComeAfterTheElementsBeforeThemAndStay) {
  const auto dataset = Dataset::range(5)
                           .map([](at::Tensor x) -> at::Tensor {
                             if (x.item<std::int64_t>() == 2) throw std::out_of_range("mine");
                             return x;
                           })
                           .prefetch(4);
  auto iterator = dataset.make_iterator();
  EXPECT_TRUE(iterator.next().has_value());
  EXPECT_TRUE(iterator.next().has_value());
  EXPECT_THROW(iterator.next(), std::out_of_range);
  EXPECT_THROW(iterator.next(), std::out_of_range);
}

TEST(Prefetch, StopsWhenTheIteratorIsDestroyedMidStream) {
  for (int i = 0; i < 200; ++i) {
    auto iterator = Dataset::range(3).repeat().batch(2).prefetch(i % 4 + 1).make_iterator();
    for (int steps = 0; steps < i % 5; ++steps) EXPECT_TRUE(iterator.next().has_value());
  }
  for (int i = 0; i < 100; ++i)
    EXPECT_EQ(values(Dataset::range(3).repeat().prefetch(2).take(4).prefetch(2)), (Ints{0, 1, 2, 0}));
}

TEST(Prefetch, StopsWhenDestroyedAfterAnError) {
  for (int i = 0; i < 50; ++i) {
    auto iterator =
        Dataset::range(5).map([](at::Tensor) -> at::Tensor { throw std::out_of_range("mine"); }).prefetch(2).make_iterator();
    if (i % 2 == 0) {
      EXPECT_THROW(iterator.next(), std::out_of_range);
    }
  }
}

TEST(Prefetch, CarriesTheCallersSettings) {
  const c10::NoGradGuard no_grad;
  const auto dataset =
      Dataset::range(1).map([](at::Tensor) { return at::scalar_tensor(c10::GradMode::is_enabled() ? 1 : 0); }).prefetch(1);
  EXPECT_EQ(values(dataset), (Ints{0}));
}

}  // namespace
}  // namespace lockstep::data

#include "lockstep/collective/bucket_exchange.h"

#include <ATen/ATen.h>

#include <algorithm>

#include "lockstep/collective/local_group.h"
#include "lockstep/collective/reduce_values.h"
#include "tests/support/testing.h"

// What an exchange does at each call, on one thread: nobody waits in it, so every order of calls can be played.

namespace lockstep {
namespace {

using Tensors = std::vector<at::Tensor>;
using Order = std::vector<std::size_t>;

// buffers[b][r], filled with values whose sum depends on the order of the replicas.
std::vector<Tensors> make_buffers(const std::vector<std::int64_t>& sizes, std::size_t replicas,
                                  at::ScalarType dtype = at::kFloat) {
  auto generator = at::make_generator<at::CPUGeneratorImpl>(11);
  std::vector<Tensors> buffers(sizes.size());
  for (std::size_t b = 0; b < sizes.size(); ++b)
    for (std::size_t r = 0; r < replicas; ++r)
      buffers[b].push_back((at::randn({sizes[b]}, generator, at::kDouble) * 1000).to(dtype));
  return buffers;
}

Tensors sums_of(const std::vector<Tensors>& buffers) {
  Tensors sums;
  for (const auto& bucket : buffers) sums.push_back(sum_values(bucket).clone());
  return sums;
}

void finish_step(BucketExchange& exchange, std::size_t replicas) {
  for (std::size_t r = 0; r < replicas; ++r) exchange.finish(r);
  for (std::size_t r = 0; r < replicas; ++r) exchange.begin_step(r);
}

::testing::AssertionResult all_hold(const std::vector<Tensors>& buffers, const Tensors& sums) {
  for (std::size_t b = 0; b < buffers.size(); ++b)
    for (std::size_t r = 0; r < buffers[b].size(); ++r)
      if (!at::equal(buffers[b][r], sums[b])) return ::testing::AssertionFailure() << "bucket " << b << " of replica " << r;
  return ::testing::AssertionSuccess();
}

TEST(BucketExchange, GivesTheSumsInEveryScheduleOfTwoReplicasAndThreeBuckets) {
  const auto source = make_buffers({40, 1, 100}, 2);
  const auto sums = sums_of(source);
  auto buffers = make_buffers({40, 1, 100}, 2);
  BucketExchange exchange(buffers, 2);
  Order orders[2] = {{0, 1, 2}, {0, 1, 2}};
  do {
    do {
      Order turns = {0, 0, 0, 1, 1, 1};
      do {
        for (std::size_t b = 0; b < 3; ++b)
          for (std::size_t r = 0; r < 2; ++r) buffers[b][r].copy_(source[b][r]);
        std::size_t next[2] = {0, 0};
        for (const auto r : turns) exchange.publish(r, orders[r][next[r]++]);
        finish_step(exchange, 2);
        ASSERT_TRUE(all_hold(buffers, sums)) << ::testing::PrintToString(turns) << ::testing::PrintToString(orders);
      } while (std::ranges::next_permutation(turns).found);
    } while (std::ranges::next_permutation(orders[1]).found);
  } while (std::ranges::next_permutation(orders[0]).found);
}

TEST(BucketExchange, AReplicaThatPublishesSumsItsOwnChunkOfWhatIsComplete) {
  constexpr std::int64_t kCount = 1000;
  auto buffers = make_buffers({kCount, 16}, 2);
  const auto before = buffers[0][0].clone();
  const auto sum = sums_of(buffers)[0];
  BucketExchange exchange(buffers, 2);
  exchange.publish(0, 0);
  EXPECT_TRUE(at::equal(buffers[0][0], before));  // the other's is not there yet
  exchange.publish(1, 0);
  const auto [begin, end] = chunk_of(kCount, 4, 1, 2);
  for (const auto& buffer : buffers[0]) EXPECT_TRUE(at::equal(buffer.slice(0, begin, end), sum.slice(0, begin, end)));
  EXPECT_TRUE(at::equal(buffers[0][0].slice(0, 0, begin), before.slice(0, 0, begin)));
}

TEST(BucketExchange, AfterAFailedStepReplicasHelpFromTheFirstBucketOn) {
  auto buffers = make_buffers({1000, 16}, 2);
  const auto source = make_buffers({1000, 16}, 2);
  const auto sum = sums_of(source)[0];
  BucketExchange exchange(buffers, 2);
  for (const std::size_t r : {0, 1}) exchange.publish(r, 0);
  exchange.reset();
  for (const std::size_t r : {0, 1}) buffers[0][r].copy_(source[0][r]);
  for (const std::size_t r : {0, 1}) exchange.publish(r, 0);
  const auto [begin, end] = chunk_of(1000, 4, 1, 2);
  for (const auto& buffer : buffers[0]) EXPECT_TRUE(at::equal(buffer.slice(0, begin, end), sum.slice(0, begin, end)));
}

TEST(BucketExchange, AfterItsLastBucketAReplicaDoesNotLook) {
  auto buffers = make_buffers({64}, 2);
  const auto before = buffers[0][1].clone();
  const auto sums = sums_of(buffers);
  BucketExchange exchange(buffers, 2);
  exchange.publish(0, 0);
  exchange.publish(1, 0);
  EXPECT_TRUE(at::equal(buffers[0][1], before));
  finish_step(exchange, 2);
  EXPECT_TRUE(all_hold(buffers, sums));
}

TEST(BucketExchange, IsPublishedUntilTheNextStepBegins) {
  BucketExchange exchange(make_buffers({16, 16}, 2), 2);
  EXPECT_EQ(exchange.buckets(), 2U);
  EXPECT_FALSE(exchange.is_published(0, 1));
  exchange.publish(0, 1);
  EXPECT_TRUE(exchange.is_published(0, 1));
  EXPECT_FALSE(exchange.is_published(0, 0));
  EXPECT_FALSE(exchange.is_published(1, 1));
  exchange.publish(0, 0);
  for (const std::size_t b : {0, 1}) exchange.publish(1, b);
  finish_step(exchange, 2);
  for (const std::size_t r : {0, 1})
    for (const std::size_t b : {0, 1}) EXPECT_FALSE(exchange.is_published(r, b));
}

TEST(BucketExchange, DividesFloatingPointSums) {
  for (const auto dtype : {at::kFloat, at::kDouble, at::kHalf})
    for (const std::size_t replicas : {1, 2, 3}) {
      auto buffers = make_buffers({100, 20}, replicas, dtype);
      auto means = sums_of(buffers);
      for (auto& mean : means) mean = mean / at::full_like(mean, 3);
      BucketExchange exchange(buffers, static_cast<int>(replicas), 3);
      for (std::size_t r = 0; r < replicas; ++r)
        for (const std::size_t b : {0, 1}) exchange.publish(r, b);
      finish_step(exchange, replicas);
      EXPECT_TRUE(all_hold(buffers, means)) << replicas << " replicas, " << dtype;
    }
}

TEST(BucketExchange, DoesNotDivideIntegers) {
  auto buffers = make_buffers({100}, 2, at::kLong);
  const auto sums = sums_of(buffers);
  BucketExchange exchange(buffers, 2, 2);
  for (const std::size_t r : {0, 1}) exchange.publish(r, 0);
  finish_step(exchange, 2);
  EXPECT_TRUE(all_hold(buffers, sums));
}

TEST(BucketExchange, SumsOneReplicasBucketsToThemselves) {
  auto buffers = make_buffers({100, 7}, 1);
  const auto sums = sums_of(buffers);
  BucketExchange exchange(buffers, 1);
  for (const std::size_t b : {1, 0}) exchange.publish(0, b);
  finish_step(exchange, 1);
  EXPECT_TRUE(all_hold(buffers, sums));
}

TEST(BucketExchange, WithoutBucketsThereIsNothingToDo) {
  BucketExchange exchange({}, 3);
  EXPECT_EQ(exchange.buckets(), 0U);
  finish_step(exchange, 3);
  exchange.reset();
  finish_step(exchange, 3);
}

TEST(BucketExchange, ABucketMayHaveFewerElementsThanReplicasOrNone) {
  auto buffers = make_buffers({0, 1, 3}, 8);
  const auto sums = sums_of(buffers);
  BucketExchange exchange(buffers, 8);
  for (std::size_t r = 0; r < 8; ++r)
    for (const std::size_t b : {2, 0, 1}) exchange.publish(r, b);
  finish_step(exchange, 8);
  EXPECT_TRUE(all_hold(buffers, sums));
}

}  // namespace
}  // namespace lockstep

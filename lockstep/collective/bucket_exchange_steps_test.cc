#include <ATen/ATen.h>

#include <algorithm>
#include <atomic>
#include <random>

#include "lockstep/collective/bucket_exchange.h"
#include "lockstep/collective/reduce_values.h"
#include "lockstep/collective/rendezvous.h"
#include "tests/support/testing.h"

// Steps of replicas that are threads, buffers that come with publish(), and steps that fail.

namespace lockstep {
namespace {

using testing::on_threads;
using Tensors = std::vector<at::Tensor>;

constexpr std::size_t kLargest = 9;

// What replica r puts into bucket b in a step: the same wherever it is asked.
at::Tensor gradient(std::size_t replica, std::size_t bucket, std::uint64_t step) {
  auto generator = at::make_generator<at::CPUGeneratorImpl>(replica + 100 * bucket + 10000 * step);
  return at::randn({static_cast<std::int64_t>(1 + 700 * bucket)}, generator, at::kFloat) * 1000;
}

at::Tensor sum_of_gradients(std::size_t replicas, std::size_t bucket, std::uint64_t step) {
  Tensors gradients;
  for (std::size_t r = 0; r < replicas; ++r) gradients.push_back(gradient(r, bucket, step));
  return sum_values(gradients);
}

std::vector<Tensors> empty_buffers(std::size_t buckets, std::size_t replicas) {
  std::vector<Tensors> buffers(buckets);
  for (std::size_t b = 0; b < buckets; ++b)
    for (std::size_t r = 0; r < replicas; ++r) buffers[b].push_back(at::zeros_like(gradient(r, b, 0)));
  return buffers;
}

std::vector<std::size_t> order_of(std::size_t replica, std::size_t buckets, std::uint64_t step) {
  std::vector<std::size_t> order(buckets);
  for (std::size_t b = 0; b < buckets; ++b) order[b] = b;
  std::mt19937_64 random(replica + 1000 * step);
  std::ranges::shuffle(order, random);
  return order;
}

// Some steps of all replicas, each on its own thread and with its own order; every bucket with b % 3 == 2 is given.
int count_wrong_sums(std::size_t replicas, std::size_t buckets, std::uint64_t steps) {
  auto buffers = empty_buffers(buckets, replicas);
  auto planned = buffers;
  for (std::size_t b = 2; b < buckets; b += 3) planned[b] = Tensors(replicas);
  BucketExchange exchange(planned, static_cast<int>(replicas));
  Rendezvous meeting(static_cast<int>(replicas), "replica");
  meeting.set_timeout(std::chrono::seconds(60));
  std::atomic<int> wrong{0};
  on_threads(static_cast<int>(replicas), [&](int rank) {
    const auto r = static_cast<std::size_t>(rank);
    for (std::uint64_t step = 0; step < steps; ++step) {
      for (const auto b : order_of(r, buckets, step)) {
        buffers[b][r].copy_(gradient(r, b, step));
        if (b % 3 == 2) exchange.publish(r, b, buffers[b][r]);
        else exchange.publish(r, b);
      }
      meeting.meet(rank, "the end of the step");
      exchange.finish(r);
      meeting.meet(rank, "the end of its sums");
      for (std::size_t b = 0; b < buckets; ++b)
        if (!at::equal(buffers[b][r], sum_of_gradients(replicas, b, step))) wrong.fetch_add(1);
      exchange.begin_step(r);
    }
  });
  return wrong.load();
}

TEST(BucketExchangeSteps, ThreadsThatPublishInDifferentOrdersAllGetTheSums) {
  for (const std::size_t replicas : {1, 2, 3, 4, 7})
    for (const std::size_t buckets : {std::size_t{1}, std::size_t{2}, std::size_t{5}, kLargest})
      EXPECT_EQ(count_wrong_sums(replicas, buckets, 6), 0) << replicas << " replicas, " << buckets << " buckets";
}

// Backward of a device runs on LibTorch's threads, not on the replica's.
TEST(BucketExchangeSteps, AReplicaMayPublishFromAnotherThreadEachTime) {
  auto buffers = empty_buffers(4, 2);
  BucketExchange exchange(buffers, 2);
  for (std::uint64_t step = 0; step < 5; ++step) {
    on_threads(2, [&](int rank) {
      const auto r = static_cast<std::size_t>(rank);
      for (const auto b : order_of(r, 4, step)) {
        const std::jthread other([&, b] {
          buffers[b][r].copy_(gradient(r, b, step));
          exchange.publish(r, b);
        });
      }
    });
    for (const std::size_t r : {0, 1}) exchange.finish(r);
    for (std::size_t b = 0; b < 4; ++b)
      for (const auto& buffer : buffers[b]) EXPECT_TRUE(at::equal(buffer, sum_of_gradients(2, b, step))) << b;
    for (const std::size_t r : {0, 1}) exchange.begin_step(r);
  }
}

void run_step(BucketExchange& exchange, std::vector<Tensors>& buffers, std::uint64_t step, bool are_given = false) {
  const auto replicas = buffers[0].size();
  for (std::size_t b = 0; b < buffers.size(); ++b)
    for (std::size_t r = 0; r < replicas; ++r) {
      buffers[b][r].copy_(gradient(r, b, step));
      if (are_given) exchange.publish(r, b, buffers[b][r]);
      else exchange.publish(r, b);
    }
  for (std::size_t r = 0; r < replicas; ++r) exchange.finish(r);
  for (std::size_t b = 0; b < buffers.size(); ++b)
    for (const auto& buffer : buffers[b]) EXPECT_TRUE(at::equal(buffer, sum_of_gradients(replicas, b, step))) << b;
  for (std::size_t r = 0; r < replicas; ++r) exchange.begin_step(r);
}

TEST(BucketExchangeSteps, AGivenBufferIsSummedInPlaceAndLetGo) {
  auto buffers = empty_buffers(2, 3);
  BucketExchange exchange(std::vector<Tensors>(2, Tensors(3)), 3);
  const auto* address = buffers[1][2].data_ptr();
  for (std::uint64_t step = 0; step < 3; ++step) {
    run_step(exchange, buffers, step, /*are_given=*/true);
    for (const auto& bucket : buffers)
      for (const auto& buffer : bucket) EXPECT_EQ(buffer.use_count(), 1U);
  }
  EXPECT_EQ(buffers[1][2].data_ptr(), address);
}

TEST(BucketExchangeSteps, AGivenBufferMayBeAnotherOneEachStep) {
  BucketExchange exchange(std::vector<Tensors>(3, Tensors(2)), 2);
  for (std::uint64_t step = 0; step < 3; ++step) {
    auto buffers = empty_buffers(3, 2);
    run_step(exchange, buffers, step, /*are_given=*/true);
  }
}

TEST(BucketExchangeSteps, AfterAFailedStepEverybodyBeginsANewOne) {
  auto buffers = empty_buffers(3, 2);
  BucketExchange exchange(buffers, 2);
  run_step(exchange, buffers, 0);
  exchange.publish(0, 1);
  exchange.publish(0, 0);
  exchange.publish(1, 0);
  exchange.reset();
  for (const std::size_t r : {0, 1})
    for (std::size_t b = 0; b < 3; ++b) EXPECT_FALSE(exchange.is_published(r, b));
  for (std::uint64_t step = 1; step < 4; ++step) run_step(exchange, buffers, step);
}

TEST(BucketExchangeSteps, AFailureMayComeWhenOnlySomeReplicasHaveBegunTheNextStep) {
  auto buffers = empty_buffers(2, 3);
  BucketExchange exchange(buffers, 3);
  for (std::size_t b = 0; b < 2; ++b)
    for (std::size_t r = 0; r < 3; ++r) exchange.publish(r, b);
  for (std::size_t r = 0; r < 3; ++r) exchange.finish(r);
  exchange.begin_step(1);
  exchange.publish(1, 0);
  exchange.reset();
  for (std::size_t r = 0; r < 3; ++r) EXPECT_FALSE(exchange.is_published(r, 0));
  for (std::uint64_t step = 0; step < 3; ++step) run_step(exchange, buffers, step);
}

TEST(BucketExchangeSteps, AFailedStepsGivenBuffersAreLetGo) {
  auto buffers = empty_buffers(2, 2);
  BucketExchange exchange(std::vector<Tensors>(2, Tensors(2)), 2);
  exchange.publish(1, 1, buffers[1][1]);
  EXPECT_EQ(buffers[1][1].use_count(), 2U);
  exchange.reset();
  EXPECT_EQ(buffers[1][1].use_count(), 1U);
  run_step(exchange, buffers, 0, /*are_given=*/true);
}

TEST(BucketExchangeSteps, ResettingBetweenStepsOrTwiceDoesNoHarm) {
  auto buffers = empty_buffers(2, 2);
  BucketExchange exchange(buffers, 2);
  exchange.reset();
  run_step(exchange, buffers, 0);
  exchange.reset();
  exchange.reset();
  for (std::uint64_t step = 1; step < 3; ++step) run_step(exchange, buffers, step);
}

}  // namespace
}  // namespace lockstep

#include <gmock/gmock.h>

#include <chrono>
#include <stdexcept>
#include <thread>

#include "lockstep/data/distributed_dataset.h"
#include "lockstep/replica/replica_set.h"
#include "tests/support/data_testing.h"

// Positions of iterators; random_pipeline_test.cc shows that any pipeline goes on from any.

namespace lockstep::data {
namespace {

using testing::code_of;
using ::testing::HasSubstr;
using testing::Ints;
using testing::ints;
using testing::text_of;

Dataset shuffled() { return Dataset::range(30).shuffle(10, 3).batch(4); }

std::string position_after(const Dataset& dataset, int elements) {
  auto iterator = dataset.make_iterator();
  for (Element element; elements > 0 && iterator.next(element); --elements) continue;
  return iterator.save();
}

TEST(Position, AtTheEndOfAPassTheNextOneIsWhatItWouldHaveBeen) {
  const auto dataset = shuffled();
  const auto position = position_after(dataset, 100);
  const auto other = shuffled();
  auto iterator = other.make_iterator();
  iterator.restore(position);
  EXPECT_FALSE(iterator.next().has_value());
  EXPECT_EQ(testing::batches(other), testing::batches(dataset));
}

TEST(Position, RefusesWhatIsDamagedOrOfAnotherPipeline) {
  const auto position = position_after(shuffled(), 2);
  for (const std::size_t at : {std::size_t{0}, position.size() / 2, position.size() - 1}) {
    auto damaged = position;
    damaged[at] ^= 1;
    EXPECT_EQ(code_of([&] { shuffled().make_iterator().restore(damaged); }), ErrorCode::kDataLoss);
  }
  EXPECT_EQ(code_of([&] { shuffled().make_iterator().restore(""); }), ErrorCode::kDataLoss);
  for (const auto& other : {Dataset::range(30).batch(4), shuffled().take(3), shuffled().shuffle(2, 1), Dataset::range(30)}) {
    EXPECT_EQ(code_of([&] { other.make_iterator().restore(position); }), ErrorCode::kInvalidArgument);
    EXPECT_EQ(code_of([&] { shuffled().make_iterator().restore(position_after(other, 2)); }), ErrorCode::kInvalidArgument);
  }
}

TEST(Position, RefusesOtherData) {
  const auto over = [](std::int64_t rows) { return Dataset::from_tensor_slices(at::arange(rows)).shuffle(5, 7).batch(4); };
  EXPECT_EQ(code_of([&] { over(10).make_iterator().restore(position_after(over(1000), 100)); }), ErrorCode::kInvalidArgument);
  const auto position = position_after(Dataset::range(100), 50);
  EXPECT_EQ(code_of([&] { Dataset::range(10).make_iterator().restore(position); }), ErrorCode::kInvalidArgument);
}

// One shuffle that is open several times: its passes are counted together.
TEST(Position, OfAShuffleThatSeveralUse) {
  const auto make = [] {
    const auto inner = Dataset::range(5).shuffle(5, 3);
    return Dataset::range(4).interleave([inner](at::Tensor x) { return x.item<std::int64_t>() == 1 ? inner.repeat(3) : inner; },
                                        2);
  };
  const auto whole = testing::values(make());
  for (int stop = 0; stop <= 30; ++stop) {
    auto first = make().make_iterator();
    Ints seen;
    for (Element element; static_cast<int>(seen.size()) < stop && first.next(element);) seen.push_back(ints(element[0])[0]);
    auto second = make().make_iterator();
    second.restore(first.save());
    for (Element element; second.next(element);) seen.push_back(ints(element[0])[0]);
    EXPECT_EQ(seen, whole) << "after " << stop;
  }
}

TEST(Position, IsRestoredBeforeTheFirstElement) {
  const auto position = position_after(shuffled(), 2);
  auto iterator = shuffled().make_iterator();
  iterator.next();
  EXPECT_EQ(code_of([&] { iterator.restore(position); }), ErrorCode::kFailedPrecondition);
}

// A pass that is restored must not go on behind an element that failed.
TEST(Position, CannotBeSavedWhenSomethingWentWrongAhead) {
  const auto fails = [](at::Tensor x) {
    if (x.item<std::int64_t>() == 3) throw std::runtime_error("the third");
    return x;
  };
  const auto mapped = Dataset::range(10).map(fails);
  for (const auto& dataset : {mapped.prefetch(5), mapped.map([](at::Tensor x) { return x; }, 2)}) {
    auto iterator = dataset.make_iterator();
    iterator.next();
    const auto deadline = std::chrono::steady_clock::now() + std::chrono::seconds(20);
    std::string thrown;
    while (thrown.empty() && std::chrono::steady_clock::now() < deadline) try {
        iterator.save();
        std::this_thread::sleep_for(std::chrono::milliseconds(1));
      } catch (const std::runtime_error& error) {
        thrown = error.what();
      }
    EXPECT_EQ(thrown, "the third");
    EXPECT_EQ(ints((*iterator.next())[0]), (Ints{1})) << "the elements before it are still there";
  }
}

std::unique_ptr<ReplicaSet> replicas(int count) {
  std::vector<LogicalDevice> devices;
  for (int i = 0; i < count; ++i) devices.push_back(find_logical_device("CPU:" + std::to_string(i)));
  return std::make_unique<ReplicaSet>(nullptr, std::move(devices), ReplicaSetOptions{});
}

Ints rest_of(DistributedIterator& iterator, int most = 100) {
  Ints all;
  for (; most > 0; --most) {
    const auto batch = iterator.next();
    if (!batch) break;
    for (const auto& part : *batch)
      for (const auto value : ints(part[0])) all.push_back(value);
  }
  return all;
}

TEST(Position, OfADistributedDatasetFitsAnyNumberOfReplicas) {
  const auto whole = testing::values(shuffled());
  for (const int before : {1, 2, 3})
    for (const int after : {1, 2, 3}) {
      const auto first = replicas(before), second = replicas(after);
      auto iterator = DistributedDataset::from_dataset(*first, shuffled()).make_iterator();
      auto seen = rest_of(iterator, 3);
      auto other = DistributedDataset::from_dataset(*second, shuffled()).make_iterator();
      other.restore(iterator.save());
      for (const auto value : rest_of(other)) seen.push_back(value);
      EXPECT_EQ(seen, whole) << before << " replicas, then " << after;
    }
}

TEST(Position, ARestoredPassIsNotReported) {
  const auto set = replicas(2);
  const auto dataset = DistributedDataset::from_dataset(*set, shuffled(), {.shard_report = true});
  auto iterator = dataset.make_iterator();
  rest_of(iterator, 2);
  auto other = dataset.make_iterator();
  other.restore(iterator.save());
  rest_of(other);
  EXPECT_THAT(text_of([&] { other.shard_report(); }), HasSubstr("restored from a position"));
  auto next = dataset.make_iterator();
  rest_of(next);
  dataset.make_iterator();  // has a report of its own
  EXPECT_TRUE(next.shard_report().is_once());
}

TEST(AutoShardHint, OfOneProcessIsEverything) {
  const auto set = replicas(2);
  const auto dataset =
      Dataset::range(8).shard(kShardHint, 0).batch(4).with_options({.auto_shard_policy = AutoShardPolicy::kHint});
  auto iterator = DistributedDataset::from_dataset(*set, dataset).make_iterator();
  EXPECT_EQ(rest_of(iterator), testing::numbers(8));
}

}  // namespace
}  // namespace lockstep::data

#include "lockstep/collective/device_exchange.h"

#include <ATen/ATen.h>

#include <atomic>

#include "lockstep/collective/bucket_exchange.h"
#include "lockstep/collective/device_buckets.h"
#include "lockstep/collective/reduce_values.h"
#include "tests/support/testing.h"
#include "tests/support/worker_threads.h"

// The paths of GPU tensors, with the CPU as the device and shared memory as its engine.

namespace lockstep {
namespace {

using testing::code_of;
using testing::KeyValueStore;
using testing::on_workers;

const c10::Device kCpu(c10::DeviceType::CPU);

// Counts what goes through it.
class Counted final : public Transport {
 public:
  Counted(const EngineSetup& setup, std::atomic<int>& calls) : engine_(setup), calls_(calls) {}
  std::string name() const override { return "counted"; }
  int rank() const override { return engine_.rank(); }
  int size() const override { return engine_.size(); }
  void all_to_all(std::span<const ConstBytes> send, std::span<const Bytes> receive) override {
    ++calls_;
    engine_.all_to_all(send, receive);
  }
  void all_gather(std::span<const Bytes> parts) override {
    ++calls_;
    engine_.all_gather(parts);
  }
  void broadcast(Bytes data, int root) override {
    ++calls_;
    engine_.broadcast(data, root);
  }
  void barrier() override { engine_.barrier(); }
  void all_reduce(SumType type, Bytes data) override { engine_.all_reduce(type, data); }
  void abort(const Error& why) noexcept override { engine_.abort(why); }

 private:
  ShmTransport engine_;
  std::atomic<int>& calls_;
};

// Workers whose tensors on the CPU have an engine of their own.
void on_device_workers(const std::vector<int>& replicas, const std::function<void(WorkerGroup&, std::atomic<int>&)>& body) {
  on_workers(replicas, [&](WorkerGroup& group, KeyValueStore& store) {
    std::atomic<int> calls = 0;
    group.use_device_engine(kCpu, [&](const std::string& name) {
      auto setup = store.setup(group.layout().rank, group.layout().size());
      setup.name = name;
      return std::make_shared<Counted>(setup, calls);
    });
    body(group, calls);
  });
}

at::Tensor value_of(int replica, std::int64_t count, at::ScalarType dtype) {
  const auto numbers = at::arange(count, at::kDouble).remainder(13) * 0.37 + replica * 1.21;
  return dtype == at::kBool ? numbers.remainder(2) > 1 : numbers.to(dtype);
}

class DeviceLayouts : public ::testing::TestWithParam<std::vector<int>> {};

TEST_P(DeviceLayouts, SumsHaveTheBitsOfOneProcess) {
  on_device_workers(GetParam(), [](WorkerGroup& group, std::atomic<int>& calls) {
    const auto& layout = group.layout();
    for (const auto dtype : {at::kFloat, at::kDouble, at::kBFloat16, at::kLong, at::kInt, at::kBool, at::kComplexFloat})
      for (const std::int64_t count : {1, 1003, 50'001}) {
        std::vector<at::Tensor> all;
        for (int replica = 0; replica < layout.total_replicas(); ++replica) all.push_back(value_of(replica, count, dtype));
        std::vector<std::vector<at::Tensor>> mine;
        for (int r = 0; r < layout.local_replicas(); ++r) {
          const auto& value = all[static_cast<std::size_t>(layout.first_replica(layout.rank) + r)];
          mine.push_back({value, value_of(r, 3, at::kDouble) * 0});
        }
        std::vector<at::Tensor> sums = {at::empty({count}, dtype), at::empty({3}, at::kDouble)};
        const int before = calls;
        group.sum("a sum", mine, sums);
        EXPECT_TRUE(at::equal(sums[0], sum_values(all))) << count << " of " << dtype;
        EXPECT_TRUE(calls > before || count < 50'000) << count << " of " << dtype;  // small ones go with the comparison
      }
  });
}

TEST_P(DeviceLayouts, GathersAndBroadcastsAreThoseOfAnyEngine) {
  on_device_workers(GetParam(), [](WorkerGroup& group, std::atomic<int>& calls) {
    const auto& layout = group.layout();
    std::vector<at::Tensor> mine;
    for (int r = 0; r < layout.local_replicas(); ++r) {
      const int replica = layout.first_replica(layout.rank) + r;
      mine.push_back(value_of(replica, 1000 * replica, at::kFloat).view({-1, 10}));
    }
    const auto all = group.all_gather("a gather", mine);
    ASSERT_EQ(static_cast<int>(all.size()), layout.total_replicas());
    for (int replica = 0; replica < layout.total_replicas(); ++replica)
      EXPECT_TRUE(
          at::equal(all[static_cast<std::size_t>(replica)], value_of(replica, 1000 * replica, at::kFloat).view({-1, 10})));
    std::vector<at::Tensor> values = {value_of(layout.rank, 7, at::kFloat),
                                      value_of(layout.rank, 600, at::kDouble).view({20, 30}).t()};
    group.broadcast("a broadcast", values);
    EXPECT_TRUE(at::equal(values[0], value_of(0, 7, at::kFloat)));
    EXPECT_TRUE(at::equal(values[1], value_of(0, 600, at::kDouble).view({20, 30}).t()));
    EXPECT_GE(calls, 3);
  });
}

// A step as the replicas of a worker make it, here one after the other on one thread.
TEST_P(DeviceLayouts, BucketsAreSummedStepAfterStep) {
  on_device_workers(GetParam(), [](WorkerGroup& group, std::atomic<int>&) {
    const auto& layout = group.layout();
    const auto local = static_cast<std::size_t>(layout.local_replicas());
    std::vector<std::vector<at::Tensor>> buffers(3);
    for (auto& of_bucket : buffers)
      for (std::size_t r = 0; r < local; ++r) of_bucket.push_back(at::zeros({5001}));
    BucketNeighbours neighbours;
    neighbours.carrier =
        std::make_shared<DeviceBuckets>(group, DeviceBuckets::Setup{"the gradients", buffers, group.new_device_channel()});
    BucketExchange exchange(buffers, layout.local_replicas(), layout.total_replicas(), neighbours);
    for (int step = 0; step < 5; ++step) {
      for (std::size_t b = 0; b < buffers.size(); ++b)
        for (std::size_t r = 0; r < local; ++r) {
          const int replica = layout.first_replica(layout.rank) + static_cast<int>(r);
          buffers[b][r].copy_(value_of(replica + step + static_cast<int>(b), 5001, at::kFloat));
          exchange.publish(r, b);
        }
      for (std::size_t r = 0; r < local; ++r) exchange.finish(r);
      for (std::size_t b = 0; b < buffers.size(); ++b) {
        std::vector<at::Tensor> all;
        for (int replica = 0; replica < layout.total_replicas(); ++replica)
          all.push_back(value_of(replica + step + static_cast<int>(b), 5001, at::kFloat));
        const auto mean = sum_values(all) / layout.total_replicas();
        for (std::size_t r = 0; r < local; ++r) EXPECT_TRUE(at::equal(buffers[b][r], mean)) << "step " << step;
      }
      for (std::size_t r = 0; r < local; ++r) exchange.begin_step(r);
    }
  });
}

INSTANTIATE_TEST_SUITE_P(, DeviceLayouts,
                         ::testing::Values(std::vector{1, 1}, std::vector{2, 2}, std::vector{1, 3}, std::vector{1, 2, 1},
                                           std::vector{1, 1, 1, 1, 1}));

TEST(DeviceExchange, ValuesThatDifferAreAnErrorAndTheGroupGoesOn) {
  on_device_workers({1, 1}, [](WorkerGroup& group, std::atomic<int>&) {
    std::vector<std::vector<at::Tensor>> values = {{at::ones({5000 + group.layout().rank})}};
    std::vector<at::Tensor> sums = {at::empty_like(values[0][0])};
    EXPECT_EQ(code_of([&] { group.sum("a sum", values, sums); }), ErrorCode::kInvalidArgument);
    values[0][0] = at::ones({5000});
    sums[0] = at::empty({5000});
    group.sum("a sum", values, sums);
    EXPECT_EQ(sums[0].sum().item<double>(), 10'000);
  });
}

TEST(DeviceExchange, AnAbortEndsWaitsForBuckets) {
  on_device_workers({1, 1}, [](WorkerGroup& group, std::atomic<int>&) {
    std::vector<std::vector<at::Tensor>> buffers = {{at::ones({5001})}};
    BucketNeighbours neighbours;
    neighbours.carrier =
        std::make_shared<DeviceBuckets>(group, DeviceBuckets::Setup{"the gradients", buffers, group.new_device_channel()});
    BucketExchange exchange(buffers, 1, 1, neighbours);
    group.barrier("all have their channels");
    if (group.layout().rank == 1) return;  // publishes nothing
    exchange.publish(0, 0);
    std::jthread aborter([&] {
      std::this_thread::sleep_for(std::chrono::milliseconds(100));
      group.abort(Error(ErrorCode::kUnavailable, "worker 1 is gone"));
    });
    EXPECT_EQ(code_of([&] { exchange.finish(0); }), ErrorCode::kUnavailable);
  });
}

}  // namespace
}  // namespace lockstep

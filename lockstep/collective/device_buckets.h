#pragma once

#include <ATen/core/Tensor.h>

#include <atomic>
#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "lockstep/base/gate.h"
#include "lockstep/collective/bucket_carrier.h"
#include "lockstep/collective/device_sum.h"
#include "lockstep/collective/worker_group.h"
#include "lockstep/device/stream_fence.h"

namespace lockstep {

// Buckets of GPU memory on their way between workers.
//
// Note [buckets on GPUs]
// 1. When all replicas of this worker have filled a bucket, one of them marks the place in its streams and wakes a thread.
// 2. The thread has the engine's stream wait for the mark, adds up the worker's buffers, and those of all workers, bucket by
//    bucket, while backward() goes on; the sum goes back into all of the worker's buffers.
// 3. At the end of the step every replica waits for that thread, so that a worker that does not come is noticed, and has its
//    stream wait for the copies.
class DeviceBuckets final : public BucketCarrier {
 public:
  struct Setup {
    std::string name;                              // "the gradients of Net", for messages
    std::vector<std::vector<at::Tensor>> buffers;  // [bucket][this worker's replica]
    std::shared_ptr<Transport> channel;            // for buckets alone, in the memory of the first replica's device
  };
  DeviceBuckets(WorkerGroup& workers, Setup setup);
  ~DeviceBuckets() override;
  DeviceBuckets(const DeviceBuckets&) = delete;
  DeviceBuckets& operator=(const DeviceBuckets&) = delete;

  void put(std::size_t bucket, std::span<const at::Tensor> buffers, std::pair<std::int64_t, std::int64_t> chunk,
           std::uint64_t step) override;
  void take(std::size_t bucket, std::uint64_t step, at::Tensor& buffer, int divisor) override;

 private:
  struct Bucket {
    std::atomic<std::uint64_t> begun{0};  // the last step in which somebody marked the place
    std::atomic<std::uint64_t> full{0};   // in which the mark is there
    std::atomic<std::uint64_t> summed{0};
    // By device. Written before `full` and `summed` move, read after.
    std::vector<StreamFence> ready;
    std::vector<StreamFence> done;
  };

  void carry(const std::stop_token& stop);
  // False: no more.
  bool wait_until_full(const Bucket& bucket, std::uint64_t step, const std::stop_token& stop);
  void sum(std::size_t bucket);

  // Const after construction.
  WorkerGroup& workers_;
  const Setup setup_;
  std::vector<c10::Device> devices_;  // of the replicas, each once
  std::unique_ptr<Bucket[]> buckets_;

  // Used only by the thread.
  DeviceSum sum_;

  // Own synchronisation.
  Gate put_;
  Gate arrived_;
  Gate carrying_;  // moved before and after the thread speaks to the other workers; odd in between

  std::jthread carrier_;  // last: joined first
};

}  // namespace lockstep

#pragma once

#include <ATen/core/Tensor.h>

#include <atomic>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "lockstep/base/gate.h"
#include "lockstep/collective/bucket_carrier.h"
#include "lockstep/collective/canonical_sum.h"
#include "lockstep/collective/worker_group.h"

namespace lockstep {

// Buckets on their way between machines. See Note [buckets of several processes], 2.
class MachineBuckets final : public BucketCarrier {
 public:
  // The sizes of one bucket.
  using Shapes = std::vector<SumShape>;

  // What the processes of one machine share: all zero at first. Bytes that the leader must provide, on a cache line.
  static std::size_t bytes_needed(const Shapes& shapes, std::size_t subtrees);

  struct Setup {
    std::string name;                               // "gradients of Net", for messages
    Shapes shapes;                                  // by bucket
    std::vector<SumNode> leaves;                    // the machine's replicas, in order
    std::byte* memory = nullptr;                    // bytes_needed(), seen by all processes of the machine
    std::shared_ptr<void> keeps = {};               // that memory
    std::shared_ptr<Transport> channel = {};        // the leader's, for buckets alone; null on the others
    std::vector<std::vector<SumNode>> brings = {};  // by machine
  };
  MachineBuckets(WorkerGroup& workers, Setup setup);
  ~MachineBuckets() override;
  MachineBuckets(const MachineBuckets&) = delete;
  MachineBuckets& operator=(const MachineBuckets&) = delete;

  // The sum of the machine's buffers goes into the outbox.
  void put(std::size_t bucket, std::span<const at::Tensor> buffers, std::pair<std::int64_t, std::int64_t> chunk,
           std::uint64_t step) override;

  // Copies the sum over all machines.
  void take(std::size_t bucket, std::uint64_t step, at::Tensor& buffer, int divisor) override;

 private:
  struct Control;

  void carry(const std::stop_token& stop);
  // False: no more.
  bool wait_for_outbox(std::size_t bucket, std::uint64_t step, const std::stop_token& stop);
  std::byte* outbox(std::size_t bucket, std::size_t subtree) const;
  std::byte* inbox(std::size_t bucket) const;

  // Const after construction.
  WorkerGroup& workers_;
  const Setup setup_;
  const SumPlan plan_;  // of the machine's replicas
  std::vector<std::size_t> offsets_;
  Control* const control_;

  // Used only by the leader's thread.
  std::unique_ptr<CanonicalSum> sum_;

  // Own synchronisation: moved before and after the thread speaks to the other machines; odd in between.
  Gate carrying_;

  std::jthread carrier_;  // last: joined first
};

}  // namespace lockstep

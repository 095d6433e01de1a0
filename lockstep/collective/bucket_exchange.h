#pragma once

#include <ATen/core/Tensor.h>

#include <atomic>
#include <cstdint>
#include <memory>
#include <vector>

#include "lockstep/device/stream_fence.h"

namespace lockstep {

// Sums buckets over the replicas of one process while they are still being filled.
//
// Note [bucket exchange]
// 1. A replica that has filled its buffer of bucket b publishes it, from whatever thread its backward runs on.
// 2. Every bucket is cut into one chunk a replica. Whenever a replica publishes, and at the end of the step, it sums its
//    own chunk of every bucket that all replicas have published, in plan order, and writes the sum to all buffers.
//    Nobody waits: a bucket that is not complete is looked at again later.
// 3. At the end of the step the caller makes all replicas meet after their last publish(), calls finish(), and makes
//    them meet again: then every buffer holds the sums.
// There is no communication thread: with as many replicas as cores it would only take a core away from one of them.
class BucketExchange {
 public:
  // buffers[r][b]: replica r's flat buffer of bucket b. All replicas' buffers of a bucket have one size and dtype.
  explicit BucketExchange(std::vector<std::vector<at::Tensor>> buffers);

  std::size_t buckets() const { return count_; }
  const at::Tensor& buffer(std::size_t replica, std::size_t bucket) const { return buffers_[replica][bucket]; }
  bool is_published(std::size_t replica, std::size_t bucket) const;

  // Replica's buffer is full; it must not be touched until the step's second meeting. Then helps.
  void publish(std::size_t replica, std::size_t bucket);

  // Sums the replica's remaining chunks. Between the two meetings.
  void finish(std::size_t replica);

  // The replica's next step begins. After the second meeting.
  void begin_step(std::size_t replica);

  // After a failed step, while no replica runs: everybody begins a new step.
  void reset();

 private:
  struct alignas(64) Progress {
    std::uint64_t step = 0;
    std::size_t next = 0;                  // the first bucket whose chunk is not summed yet
    std::vector<std::uint64_t> published;  // by bucket: the last step (from 1) in which it was published
    std::vector<StreamFence> fences;       // by bucket
    StreamFence done;
  };

  void help(std::size_t replica);
  void sum_chunk(std::size_t replica, std::size_t bucket);

  // Const after construction (the tensors' contents are not).
  const std::vector<std::vector<at::Tensor>> buffers_;
  const std::size_t size_;
  const std::size_t count_;
  std::vector<std::vector<at::Tensor>> by_bucket_;  // [b][r]

  // [r] used only by replica r.
  std::unique_ptr<Progress[]> progress_;

  // Own synchronisation: how often a bucket was published, over all replicas and steps.
  std::unique_ptr<std::atomic<std::uint64_t>[]> published_;
};

}  // namespace lockstep

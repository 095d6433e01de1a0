#pragma once

#include <ATen/core/Tensor.h>

#include <atomic>
#include <cstdint>
#include <memory>
#include <vector>

#include "lockstep/device/stream_fence.h"

namespace lockstep {

class BucketCarrier;

// What a bucket exchange needs to reach beyond its process.
//
// Note [buckets of several processes]
// 1. The replicas of one machine, in whatever process, are neighbours: their buffers lie in memory that all of them see,
//    and so do the counters. Each sums its chunk of everybody's buffers, as in one process; nothing is copied to be sent.
// 2. Where there are other machines, a chunk's sum is put into an outbox instead. A thread of the machine's first process
//    adds up what the machines have, bucket by bucket, while backward() goes on, and puts it into an inbox, from which
//    every replica takes it at the end of the step.
// 3. On GPUs with an engine of their own the neighbours are this process's replicas, and the carrier takes their sum to
//    the other workers: Note [buckets on GPUs].
struct BucketNeighbours {
  int first = 0;                                     // this process's replicas among the machine's
  std::atomic<std::uint64_t>* published = nullptr;   // by bucket, all zero; null: the exchange's own
  std::shared_ptr<void> memory = nullptr;            // whatever the buffers and counters lie in
  std::shared_ptr<BucketCarrier> carrier = nullptr;  // null: one machine
};

// Sums buckets over the replicas of one machine while they are still being filled.
//
// Note [bucket exchange]
// 1. A replica that has filled its buffer of bucket b publishes it, from whatever thread its backward runs on.
//    A bucket without a buffer is published with one each time: a large gradient, which is summed where it is.
// 2. Every bucket is cut into one chunk a replica. Whenever a replica publishes, and at the end of the step, it sums its
//    own chunk of every bucket that all replicas have published, in plan order, and writes the sum to all buffers.
//    Nobody waits: a bucket that is not complete is looked at again later. After its last bucket a replica does not
//    look: the others may be waiting for it at the end of the step, and sum their chunks at the same time as it does.
// 3. At the end of the step the caller makes all replicas meet after their last publish(), calls finish(), and makes
//    them meet again: then every buffer holds the sums.
// There is no communication thread: with as many replicas as cores it would only take a core away from one of them.
class BucketExchange {
 public:
  // buffers[b][r]: replica r's buffer of bucket b; not defined: given to publish(). All replicas' buffers of a bucket
  // have one size, dtype and memory order. Floating-point sums are divided by `divisor`.
  explicit BucketExchange(std::vector<std::vector<at::Tensor>> buffers, int replicas, int divisor = 1);
  // The same with buffers of all the machine's replicas, `replicas` of which are this process's.
  BucketExchange(std::vector<std::vector<at::Tensor>> buffers, int replicas, int divisor, BucketNeighbours neighbours);
  ~BucketExchange();

  std::size_t buckets() const { return buffers_.size(); }
  bool is_published(std::size_t replica, std::size_t bucket) const;

  // Replica's buffer is full; it must not be touched until the step's second meeting. Then helps.
  void publish(std::size_t replica, std::size_t bucket);
  void publish(std::size_t replica, std::size_t bucket, const at::Tensor& buffer);

  // Sums the replica's remaining chunks, and takes what the other machines gave. Between the two meetings.
  void finish(std::size_t replica);

  // The replica's next step begins. After the second meeting.
  void begin_step(std::size_t replica);

  // After a failed step, while no replica runs, in any process: everybody begins a new step, after `last` of all processes.
  void reset(std::uint64_t last = 0);
  // The step that was begun last, of this process's replicas.
  std::uint64_t last_step() const;

 private:
  struct alignas(64) Progress {
    std::uint64_t step = 0;
    std::size_t next = 0;                  // the first bucket whose chunk is not summed yet
    std::size_t count = 0;                 // buckets published in this step
    std::vector<std::uint64_t> published;  // by bucket: the last step (from 1) in which it was published
    std::vector<StreamFence> fences;       // by bucket
    StreamFence done;
  };

  // Where this process's replica stands among the machine's.
  std::size_t at(std::size_t replica) const { return static_cast<std::size_t>(neighbours_.first) + replica; }
  void help(std::size_t replica);
  void sum_chunk(std::size_t replica, std::size_t bucket);
  void forget_given(std::size_t replica);

  // Const after construction.
  const std::size_t size_;   // replicas of the machine
  const std::size_t count_;  // of this process
  const int divisor_;
  const BucketNeighbours neighbours_;
  std::vector<bool> is_given_;  // by bucket: its buffers come with publish()

  // [b][m], by the machine's replicas: written by its owner before it publishes bucket b and after the second meeting,
  // read by all in between.
  std::vector<std::vector<at::Tensor>> buffers_;

  // [r] used only by replica r.
  std::unique_ptr<Progress[]> progress_;

  // Own synchronisation: how often a bucket was published, over all replicas and steps.
  std::unique_ptr<std::atomic<std::uint64_t>[]> own_published_;
  std::atomic<std::uint64_t>* published_;
};

}  // namespace lockstep

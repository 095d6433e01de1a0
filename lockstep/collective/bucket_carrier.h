#pragma once

#include <cstdint>
#include <span>
#include <utility>

#include "lockstep/fwd.h"

namespace lockstep {

// What takes gradient buckets beyond the replicas that a BucketExchange knows, while backward() goes on.
class BucketCarrier {
 public:
  virtual ~BucketCarrier() = default;

  // Every replica's buffer of the bucket is full: one replica's chunk [first, second) may go. `step` counts from 1. Called
  // for each of them, from any thread.
  virtual void put(std::size_t bucket, std::span<const at::Tensor> buffers, std::pair<std::int64_t, std::int64_t> chunk,
                   std::uint64_t step) = 0;

  // Waits for the sum over all replicas of the job, divided by `divisor`, in one replica's buffer. Throws the job's failure.
  virtual void take(std::size_t bucket, std::uint64_t step, at::Tensor& buffer, int divisor) = 0;
};

}  // namespace lockstep

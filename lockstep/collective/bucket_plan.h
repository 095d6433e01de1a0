#pragma once

#include <cstdint>
#include <span>
#include <vector>

namespace lockstep {

// What planning needs to know of one gradient.
struct GradientInfo {
  int dtype = 0;   // any number that is equal for equal dtypes
  int device = 0;  // likewise for devices
  std::int64_t elements = 0;
  std::int64_t element_bytes = 4;
  bool is_alone = false;  // gets a bucket of its own
};

// Gradients that are summed together: one flat buffer a replica.
struct Bucket {
  struct Member {
    std::size_t gradient = 0;
    std::int64_t offset = 0;  // elements from the buffer's start, on a cache line
  };
  std::vector<Member> members = {};
  std::int64_t elements = 0;
};

// Groups gradients by dtype and device, newest first (backward finishes them in that order), each bucket at most
// `cap_bytes` unless a single gradient is larger or wants to be alone. Buckets come in the order in which backward
// completes them. Pure: the same answer wherever it is asked.
std::vector<Bucket> plan_buckets(std::span<const GradientInfo> gradients, std::int64_t cap_bytes);

}  // namespace lockstep

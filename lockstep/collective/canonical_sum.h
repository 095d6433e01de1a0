#pragma once

#include <c10/core/ScalarType.h>

#include <cstdint>
#include <span>
#include <vector>

#include "lockstep/collective/sum_tree.h"
#include "lockstep/collective/transport.h"

namespace lockstep {

// Elements of one dtype, as their sums see them: complex numbers are pairs.
struct SumShape {
  c10::ScalarType dtype = c10::ScalarType::Float;
  std::int64_t count = 0;

  std::size_t element_bytes() const;
  std::size_t bytes() const { return static_cast<std::size_t>(count) * element_bytes(); }
};

// outputs[k] = the value of plan.nodes[k], where inputs[i] is the value of the plan's i-th input. An output may be an input.
void carry_out(const SumPlan& plan, const SumShape& shape, std::span<const void* const> inputs, std::span<void* const> outputs);

// Adds up what the ranks of an engine bring, in the canonical order over all replicas: the same bits whatever the engine
// and however the replicas are divided between the ranks.
//
// Note [canonical all-reduce]
// 1. Every rank holds the sums of some whole subtrees of the tree over all replicas (usually one).
// 2. The arrays are cut into one chunk a rank. Each rank sends every other one that one's chunk of all its subtrees, adds
//    up, in tree order, what it got for its own, and hands the result to all: one all_to_all, one all_gather, each byte
//    sent as often as in the best known algorithms.
// 3. Where the ranks together are not yet all replicas (the machines of a larger job), the result is again some subtrees.
class CanonicalSum {
 public:
  // brings[r]: what rank r holds. `total` counts the replicas of the whole job. The engine outlives it.
  CanonicalSum(Transport& transport, const std::vector<std::vector<SumNode>>& brings, int total);

  // What everybody has afterwards.
  const std::vector<SumNode>& nodes() const noexcept { return plan_.nodes; }

  // mine[i]: this rank's array of its i-th subtree; results[k]: where the array of nodes()[k] is put. A result may be one
  // of this rank's own arrays.
  void reduce(const SumShape& shape, std::span<const void* const> mine, std::span<void* const> results);

 private:
  void reduce_block(const SumShape& block, std::span<const void* const> mine, std::span<void* const> results);

  // Const after construction.
  Transport& transport_;
  std::vector<std::size_t> counts_;  // by rank: how many subtrees it brings
  SumPlan plan_;                     // inputs: rank by rank

  // Used only by the thread that calls.
  std::vector<std::byte> outgoing_;
  std::vector<std::byte> incoming_;
};

}  // namespace lockstep

#pragma once

#include <span>
#include <vector>

namespace lockstep {

// A place in the canonical tree over `total` replicas, ((r0+r1)+(r2+r3))+...: the sum of the replicas
// [index * 2^level, (index + 1) * 2^level), as far as there are any.
struct SumNode {
  int level = 0;
  int index = 0;

  friend bool operator==(const SumNode&, const SumNode&) = default;
  friend auto operator<=>(const SumNode&, const SumNode&) = default;
};

// How some nodes' values are added up as far as the tree allows: a participant that holds replicas 1 and 2 of four cannot
// add them, since they belong to different pairs.
//
// Operands are numbered: first the inputs, in their order, then the results of `adds`, in theirs.
struct SumPlan {
  struct Add {
    std::size_t left = 0;
    std::size_t right = 0;
  };
  std::size_t inputs = 0;
  std::vector<Add> adds = {};
  std::vector<SumNode> nodes = {};         // what is left, in order
  std::vector<std::size_t> operands = {};  // by node: where its value is
};

// Throws kInternal when a node is given twice or lies outside the tree.
SumPlan plan_sums(std::span<const SumNode> inputs, int total);

// The replicas [first, first + count) as leaves.
std::vector<SumNode> leaves_of(int first, int count);

}  // namespace lockstep

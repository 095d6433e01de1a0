#include "lockstep/collective/sum_tree.h"

#include <cstdint>
#include <map>

#include "lockstep/base/error.h"
#include "lockstep/base/str.h"

namespace lockstep {
namespace {

// Whether a node has no neighbour to its right: its value moves up as it is.
bool is_last(const SumNode& node, int total) {
  return node.index % 2 == 0 && ((static_cast<std::int64_t>(node.index) + 1) << node.level) >= total;
}

int height_of(int total) {
  int levels = 0;
  while ((std::int64_t{1} << levels) < total) ++levels;
  return levels;
}

}  // namespace

SumPlan plan_sums(std::span<const SumNode> inputs, int total) {
  SumPlan plan{inputs.size()};
  std::map<SumNode, std::size_t> at;
  for (const auto& node : inputs) {
    const bool is_inside = node.level >= 0 && node.index >= 0 && (static_cast<std::int64_t>(node.index) << node.level) < total;
    if (!is_inside || !at.emplace(node, at.size()).second)
      throw Error(ErrorCode::kInternal, str("plan_sums: node ", node.level, "/", node.index, " of ", total,
                                            " replicas is outside the tree or given twice"));
  }
  const int height = height_of(total);
  for (int level = 0; level < height; ++level) {
    for (auto it = at.lower_bound({level, 0}); it != at.end() && it->first.level == level;) {
      const auto [node, operand] = *it;
      const auto next = std::next(it);
      const bool has_sibling = node.index % 2 == 0 && next != at.end() && next->first == SumNode{level, node.index + 1};
      if (!has_sibling && !is_last(node, total)) {
        it = next;
        continue;
      }
      auto sum = operand;
      if (has_sibling) {
        plan.adds.push_back({operand, next->second});
        sum = plan.inputs + plan.adds.size() - 1;
      }
      it = at.erase(it, has_sibling ? std::next(next) : next);
      at.emplace(SumNode{level + 1, node.index / 2}, sum);
    }
  }
  for (const auto& [node, operand] : at) {
    plan.nodes.push_back(node);
    plan.operands.push_back(operand);
  }
  return plan;
}

std::vector<SumNode> leaves_of(int first, int count) {
  std::vector<SumNode> leaves;
  for (int replica = first; replica < first + count; ++replica) leaves.push_back({0, replica});
  return leaves;
}

}  // namespace lockstep

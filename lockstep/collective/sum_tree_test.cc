#include "lockstep/collective/sum_tree.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>

#include "lockstep/base/error.h"
#include "lockstep/collective/tree_sum.h"

namespace lockstep {
namespace {

using ::testing::ElementsAre;

// Adds texts, so that the order of all additions can be read.
std::string add(const std::string& a, const std::string& b) { return "(" + a + "+" + b + ")"; }

struct Part {
  std::vector<SumNode> nodes;
  std::vector<std::string> values;
};

Part carry_out(const SumPlan& plan, std::vector<std::string> operands) {
  for (const auto& [left, right] : plan.adds) operands.push_back(add(operands[left], operands[right]));
  Part part{plan.nodes, {}};
  for (const auto operand : plan.operands) part.values.push_back(operands[operand]);
  return part;
}

Part leaves(int first, int count, int total) {
  std::vector<std::string> values;
  for (int r = first; r < first + count; ++r) values.push_back(std::to_string(r));
  const auto nodes = leaves_of(first, count);
  return carry_out(plan_sums(nodes, total), values);
}

std::string whole_tree(int total) {
  std::vector<std::string> values;
  for (int r = 0; r < total; ++r) values.push_back(std::to_string(r));
  return tree_fold(values, add);
}

TEST(SumTree, AnyDivisionOfTheReplicasGivesTheSameTree) {
  for (int total = 1; total <= 13; ++total)
    for (unsigned cuts = 0; cuts < 1U << (total - 1); ++cuts) {
      std::vector<SumNode> nodes;
      std::vector<std::string> values;
      int first = 0;
      for (int end = 1; end <= total; ++end) {
        if (end < total && (cuts >> (end - 1) & 1U) == 0) continue;
        const auto part = leaves(first, end - first, total);
        nodes.insert(nodes.end(), part.nodes.begin(), part.nodes.end());
        values.insert(values.end(), part.values.begin(), part.values.end());
        first = end;
      }
      const auto result = carry_out(plan_sums(nodes, total), values);
      ASSERT_THAT(result.values, ElementsAre(whole_tree(total))) << total << " replicas cut as " << cuts;
    }
}

TEST(SumTree, PartsThatAreNotNeighboursInTheTreeStayApart) {
  EXPECT_THAT(leaves(1, 2, 4).values, ElementsAre("1", "2"));
  EXPECT_THAT(leaves(2, 2, 4).values, ElementsAre("(2+3)"));
  EXPECT_THAT(leaves(1, 5, 6).values, ElementsAre("1", "(2+3)", "(4+5)"));
}

TEST(SumTree, ReplicasOfOneMachineNeedNotBeNeighbours) {
  const std::vector<SumNode> nodes = {{0, 0}, {0, 2}, {0, 3}};
  EXPECT_THAT(carry_out(plan_sums(nodes, 4), {"0", "2", "3"}).values, ElementsAre("0", "(2+3)"));
}

TEST(SumTree, ANodeThatIsGivenTwiceOrDoesNotExistIsRefused) {
  const std::vector<SumNode> twice = {{0, 1}, {0, 1}};
  EXPECT_THROW(plan_sums(twice, 4), Error);
  const std::vector<SumNode> outside = {{0, 4}};
  EXPECT_THROW(plan_sums(outside, 4), Error);
}

}  // namespace
}  // namespace lockstep

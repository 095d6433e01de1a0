#include "lockstep/collective/tree_sum.h"

#include <gtest/gtest.h>

#include <random>
#include <vector>

namespace lockstep {
namespace {

// The canonical order written down a second time, one element at a time.
float reference(std::vector<float> values) {
  while (values.size() > 1) {
    std::vector<float> next;
    for (std::size_t i = 0; i < values.size(); i += 2)
      next.push_back(i + 1 < values.size() ? values[i] + values[i + 1] : values[i]);
    values = next;
  }
  return values[0];
}

TEST(TreeSum, FollowsTheCanonicalOrderForAnyNumberOfInputs) {
  std::mt19937 random(3);
  std::uniform_real_distribution<float> draw(-1e4F, 1e4F);
  constexpr std::int64_t kCount = 2500;  // more than two blocks
  for (std::size_t size = 1; size <= 9; ++size) {
    std::vector<std::vector<float>> data(size, std::vector<float>(kCount));
    for (auto& row : data)
      for (auto& value : row) value = draw(random);
    std::vector<float> first(kCount, -7);
    std::vector<float> second(kCount, -7);
    std::vector<const void*> inputs;
    for (const auto& row : data) inputs.push_back(row.data());
    const std::vector<void*> outputs = {first.data(), second.data()};
    tree_sum(SumType::kFloat, inputs, outputs, {10, kCount - 10});
    EXPECT_EQ(first, second);
    for (std::int64_t i = 0; i < kCount; ++i) {
      std::vector<float> column;
      for (const auto& row : data) column.push_back(row[static_cast<std::size_t>(i)]);
      const bool is_inside = i >= 10 && i < kCount - 10;
      ASSERT_EQ(first[static_cast<std::size_t>(i)], is_inside ? reference(column) : -7) << size << " inputs, element " << i;
    }
  }
}

TEST(TreeSum, AnOutputMayBeAnInput) {
  for (const std::size_t size : {2, 3, 5}) {
    std::vector<std::vector<std::int64_t>> data(size, std::vector<std::int64_t>(100, 1));
    std::vector<const void*> inputs;
    std::vector<void*> outputs;
    for (auto& row : data) {
      inputs.push_back(row.data());
      outputs.push_back(row.data());
    }
    tree_sum(SumType::kInt64, inputs, outputs, {0, 100});
    for (const auto& row : data) EXPECT_EQ(row, std::vector<std::int64_t>(100, static_cast<std::int64_t>(size)));
  }
}

}  // namespace
}  // namespace lockstep

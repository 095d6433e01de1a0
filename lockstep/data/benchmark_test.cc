#include "lockstep/data/benchmark.h"

#include <gmock/gmock.h>

#include <sstream>
#include <thread>

#include "tests/support/data_testing.h"

namespace lockstep::data {
namespace {

TEST(Benchmark, CountsWhatEveryStageGave) {
  const auto report = Dataset::range(100).shuffle(10, 1).filter([](at::Tensor x) { return x % 2 == 0; }).batch(8).benchmark();
  EXPECT_EQ(report.elements, 7);
  std::vector<std::int64_t> elements;
  for (const auto& stage : report.stages) elements.push_back(stage.elements);
  EXPECT_EQ(elements, (std::vector<std::int64_t>{7, 50, 100, 100}));
}

TEST(Benchmark, NamesTheStageThatHoldsTheOthersUp) {
  const auto slow = [](at::Tensor x) {
    std::this_thread::sleep_for(std::chrono::milliseconds(5));
    return x;
  };
  const auto report = Dataset::range(20).map(slow).batch(4).prefetch(2).benchmark();
  EXPECT_THAT(report.slowest, ::testing::StartsWith("Map(fn)"));
  std::ostringstream text;
  text << report;
  EXPECT_THAT(text.str(), ::testing::HasSubstr("ready"));
}

TEST(Benchmark, EndsAtItsLimits) {
  EXPECT_EQ(Dataset::range(10).repeat().benchmark({.elements = 25}).elements, 25);
  EXPECT_GT(Dataset::range(10).repeat().benchmark({.at_most = std::chrono::milliseconds(20)}).elements, 0);
}

}  // namespace
}  // namespace lockstep::data

#include "lockstep/ps/staleness_histogram.h"

#include <ATen/ATen.h>
#include <gmock/gmock.h>

#include "lockstep/ps/client.h"
#include "lockstep/ps/store.h"
#include "tests/support/ps_testing.h"
#include "tests/support/testing.h"

namespace lockstep::ps {
namespace {

using lockstep::testing::MethodTable;
using lockstep::testing::plain_rule;
using ::testing::ElementsAre;
using ::testing::IsEmpty;

TEST(StalenessHistogram, CountsByPowersOfTwo) {
  StalenessHistogram histogram;
  EXPECT_THAT(histogram.counts(), IsEmpty());
  for (std::uint64_t missed = 0; missed < 9; ++missed) histogram.add(10, 10 + missed + 1);
  EXPECT_THAT(histogram.counts(), ElementsAre(1, 1, 2, 4, 1));
  histogram.add(10, 3);  // of a variable that was made anew
  histogram.add(0, ~0ULL);
  EXPECT_EQ(histogram.counts()[0], 2U);
  EXPECT_EQ(histogram.counts().size(), 65U);
}

TEST(StalenessHistogram, OfAStoreIsOfItsGradients) {
  VariableStore store({.rules = plain_rule});
  const MethodTable table(store.methods());
  const Description w{
      .name = "w", .dtype = static_cast<std::int8_t>(at::kFloat), .shape = {2}, .whole_shape = {2}, .rule = "1"};
  table.call<CreateReply>(methods::kCreate, CreateRequest{{1, 1, 1}, w}, {at::zeros({2})});
  std::uint64_t sequence = 1;
  const auto push = [&](std::optional<std::uint64_t> made_of) {
    const Operation gradient{
        .name = "w", .kind = Operation::Kind::kGradient, .dtype = w.dtype, .shape = {2}, .made_of = made_of};
    ++sequence;
    table.call<UpdateReply>(methods::kUpdate, UpdateRequest{{1, sequence, sequence}, {gradient}}, {at::ones({2})});
  };
  push(0);             // version 0 -> 1
  push(1);             // 1 -> 2
  push(1);             // one is missed
  push(std::nullopt);  // who does not say is not counted
  push(0);             // four are missed
  EXPECT_THAT(table.call<StoreStatistics>(methods::kStatistics, std::string()).staleness, ElementsAre(2, 1, 0, 1));
}

}  // namespace
}  // namespace lockstep::ps

#include "lockstep/cluster/hostlist.h"

#include "tests/support/testing.h"

namespace lockstep {
namespace {

using ::testing::ElementsAre;
using testing::ThrowsCode;

TEST(Hostlist, ExpandsRangesAndLists) {
  EXPECT_THAT(expand_hostlist("n[1-2],m5,o[3-4,6,7-9]"), ElementsAre("n1", "n2", "m5", "o3", "o4", "o6", "o7", "o8", "o9"));
  EXPECT_THAT(expand_hostlist("alone"), ElementsAre("alone"));
  EXPECT_THAT(expand_hostlist("gpu[1-2].example.org"), ElementsAre("gpu1.example.org", "gpu2.example.org"));
}

TEST(Hostlist, KeepsLeadingZeros) {
  EXPECT_THAT(expand_hostlist("n[0001-0003],m5,o[009-011]"),
              ElementsAre("n0001", "n0002", "n0003", "m5", "o009", "o010", "o011"));
  EXPECT_THAT(expand_hostlist("n[98-101]"), ElementsAre("n98", "n99", "n100", "n101"));
}

TEST(Hostlist, CombinesSeveralBrackets) {
  EXPECT_THAT(expand_hostlist("r[1-2]n[1,3]"), ElementsAre("r1n1", "r1n3", "r2n1", "r2n3"));
}

TEST(Hostlist, SaysWhereItIsWrong) {
  EXPECT_THAT([] { expand_hostlist("n[1-"); }, ThrowsCode(ErrorCode::kInvalidArgument, "character 5", "number"));
  EXPECT_THAT([] { expand_hostlist("n[1-2"); }, ThrowsCode(ErrorCode::kInvalidArgument, "']'"));
  EXPECT_THAT([] { expand_hostlist("n[3-1]"); }, ThrowsCode(ErrorCode::kInvalidArgument, "backwards"));
  for (const char* bad : {"", ",", "a,", "n[]", "n]", "n[a]", "n[1-2]]", "n[1-999999999]", "n[99999999999999999999]"})
    EXPECT_EQ(testing::code_of([&] { expand_hostlist(bad); }), ErrorCode::kInvalidArgument) << bad;
}

TEST(Hostlist, ExpandsTasksPerNode) {
  EXPECT_THAT(expand_tasks_per_node("3(x2),2,1"), ElementsAre(3, 3, 2, 1));
  for (const char* bad : {"", "x", "3(", "3(x", "3(x2", "3(2)", "3,", "3(x999999999)"})
    EXPECT_EQ(testing::code_of([&] { expand_tasks_per_node(bad); }), ErrorCode::kInvalidArgument) << bad;
}

}  // namespace
}  // namespace lockstep

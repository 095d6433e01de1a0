#include "lockstep/cluster/cluster_spec.h"

#include "tests/support/testing.h"

namespace lockstep {
namespace {

using testing::ThrowsCode;

TEST(ClusterSpec, KeepsTheOrderOfItsJobs) {
  const ClusterSpec spec({{"worker", {"a:1", "b:1"}}, {"chief", {"c:1"}}});
  EXPECT_EQ(spec.jobs(), (std::vector<std::string>{"worker", "chief"}));
  EXPECT_EQ(spec.num_tasks("worker"), 2);
  EXPECT_EQ(spec.task_address("worker", 1), "b:1");
  EXPECT_EQ(spec.to_json(), R"({"worker":["a:1","b:1"],"chief":["c:1"]})");
  EXPECT_EQ(spec.all_tasks(), (std::vector<Task>{{"worker", 0}, {"worker", 1}, {"chief", 0}}));
}

TEST(ClusterSpec, MayHaveGaps) {
  const auto spec = ClusterSpec::from_json(R"({"worker": {"1": "a:1", "4": "b:1"}})");
  EXPECT_EQ(spec.task_indices("worker"), (std::vector<std::int64_t>{1, 4}));
  EXPECT_EQ(spec.job_tasks("worker").size(), 5U);
  EXPECT_EQ(spec.job_tasks("worker")[2], std::nullopt);
  EXPECT_FALSE(spec.is_dense("worker"));
  EXPECT_EQ(ClusterSpec::from_json(spec.to_json()), spec);
}

TEST(ClusterSpec, IsEqualInWhateverOrder) {
  EXPECT_EQ(ClusterSpec({{"a", {"1"}}, {"b", {"2"}}}), ClusterSpec({{"b", {"2"}}, {"a", {"1"}}}));
  EXPECT_NE(ClusterSpec({{"a", {"1", "2"}}}), ClusterSpec({{"a", {"2", "1"}}}));
}

TEST(ClusterSpec, SaysWhatItHasWhenAskedForSomethingElse) {
  const ClusterSpec spec({{"worker", {"a:1"}}});
  EXPECT_THAT([&] { spec.num_tasks("ps"); }, ThrowsCode(ErrorCode::kInvalidArgument, "'ps'", "worker"));
  EXPECT_THAT([&] { spec.task_address("worker", 3); }, ThrowsCode(ErrorCode::kInvalidArgument, "task 3", "'worker'"));
  EXPECT_THAT([] { ClusterSpec().tasks("worker"); }, ThrowsCode(ErrorCode::kInvalidArgument, "no jobs"));
}

TEST(ClusterSpec, SaysWhereJsonIsWrong) {
  EXPECT_THAT([] { ClusterSpec::from_json("1e656e9"); }, ThrowsCode(ErrorCode::kInvalidArgument));
  EXPECT_THAT([] { ClusterSpec::from_json("1e999"); }, ThrowsCode(ErrorCode::kInvalidArgument, "too large"));
  EXPECT_THAT([] { ClusterSpec::from_json("{\n  \"worker\": [\"a:1\",]\n}"); },
              ThrowsCode(ErrorCode::kInvalidArgument, "line 2, column 20"));
  EXPECT_THAT([] { ClusterSpec::from_json(""); }, ThrowsCode(ErrorCode::kInvalidArgument, "empty text"));
  EXPECT_THAT([] { ClusterSpec::from_json("[1]"); }, ThrowsCode(ErrorCode::kInvalidArgument, "object of jobs"));
  EXPECT_THAT([] { ClusterSpec::from_json(R"({"worker": "a:1"})"); },
              ThrowsCode(ErrorCode::kInvalidArgument, "list of addresses"));
  EXPECT_THAT([] { ClusterSpec::from_json(R"({"worker": [5]})"); }, ThrowsCode(ErrorCode::kInvalidArgument, "address 5"));
  EXPECT_THAT([] { ClusterSpec::from_json(R"({"worker": {"one": "a:1"}})"); },
              ThrowsCode(ErrorCode::kInvalidArgument, "'one'"));
  EXPECT_THAT([] { ClusterSpec::from_json(R"({"worker": {"-1": "a:1"}})"); }, ThrowsCode(ErrorCode::kOutOfRange, "-1"));
  EXPECT_THAT([] { ClusterSpec::from_json(R"({"worker": {"9223372036854775807": "a:1"}})"); },
              ThrowsCode(ErrorCode::kOutOfRange));
}

}  // namespace
}  // namespace lockstep

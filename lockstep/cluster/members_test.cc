#include "lockstep/cluster/members.h"

#include "tests/support/testing.h"

namespace lockstep {
namespace {

using namespace std::chrono_literals;
using testing::ThrowsCode;

Introduction worker(std::int64_t index) {
  return {{"worker", index}, "secret", "spec", "build", str("host", index), 100 + index};
}

struct MembersTest : ::testing::Test {
  Members members{{{"worker", 0}, {"worker", 1}, {"worker", 2}}, "secret", "spec", "build"};
};

TEST_F(MembersTest, RefusesWhatDoesNotFitAndSaysWhy) {
  const auto with = [](auto change) {
    auto introduction = worker(0);
    change(introduction);
    return introduction;
  };
  const auto refused = [&](const Introduction& introduction, const char* why) {
    EXPECT_THAT([&] { members.join(introduction); }, ThrowsCode(ErrorCode::kFailedPrecondition, "worker", why));
  };
  refused(with([](Introduction& i) { i.secret = "guess"; }), "job secret");
  refused(with([](Introduction& i) { i.secret = ""; }), "job secret");
  refused(with([](Introduction& i) { i.spec = "other"; }), "told the cluster is other");
  refused(with([](Introduction& i) { i.build = "2"; }), "use one build");
  refused(with([](Introduction& i) { i.task.index = 3; }), "no such task");
  members.join(worker(0));
  refused(worker(0), "taken by process 100 on host 'host0'");
}

TEST_F(MembersTest, ABarrierOpensWhenAllAreThere) {
  std::vector<std::uint64_t> ids;
  for (int k = 0; k < 3; ++k) ids.push_back(members.join(worker(k)));
  for (int round = 0; round < 20; ++round)
    testing::on_threads(3, [&](int k) { members.barrier("start", ids[static_cast<std::size_t>(k)], Deadline::after(10s)); });
}

TEST_F(MembersTest, ABarrierNamesWhoIsMissingAndWhatTheyDo) {
  const auto zero = members.join(worker(0));
  const auto one = members.join(worker(1));
  members.note(one, {12, "user code"});
  EXPECT_THAT([&] { members.barrier("start", zero, Deadline::after(50ms)); },
              ThrowsCode(ErrorCode::kDeadlineExceeded, "'start'", "worker 1 on host 'host1' (user code",
                         "worker 2 (has not registered)"));
  EXPECT_THAT([&] { members.barrier("start", zero, Deadline::after(50ms)); }, ThrowsCode(ErrorCode::kDeadlineExceeded));
}

TEST_F(MembersTest, ALostMemberEndsAllWaitsWithItsName) {
  const auto zero = members.join(worker(0));
  const auto one = members.join(worker(1));
  members.note(one, {12, "user code"});
  std::jthread killer([&] {
    std::this_thread::sleep_for(50ms);
    members.lose(one, "killed");
  });
  EXPECT_THAT([&] { members.barrier("start", zero, Deadline::after(10s)); },
              ThrowsCode(ErrorCode::kUnavailable, "worker 1", "host1", "process 101", "killed", "last step was 12"));
  EXPECT_THAT([&] { members.get(zero, "key", Deadline::after(10s)); }, ThrowsCode(ErrorCode::kUnavailable, "worker 1"));
  EXPECT_EQ(members.failure()->task, (Task{"worker", 1}));
}

TEST_F(MembersTest, TheFirstFailureIsTheOneThatCounts) {
  const auto zero = members.join(worker(0));
  const auto one = members.join(worker(1));
  members.fail(one, ErrorCode::kInvalidArgument, "worker 1: bad data");
  members.lose(zero, "gone");
  EXPECT_EQ(members.failure()->message, "worker 1: bad data");
}

TEST_F(MembersTest, WhoHasLeftIsNotALoss) {
  const auto zero = members.join(worker(0));
  const auto one = members.join(worker(1));
  members.leave(one);
  members.lose(one, "closed");
  EXPECT_EQ(members.failure(), std::nullopt);
  EXPECT_THAT([&] { members.barrier("end", zero, Deadline::after(10s)); },
              ThrowsCode(ErrorCode::kUnavailable, "worker 1 (has left)"));
  // Who comes now belongs to the next job at this address.
  EXPECT_THAT([&] { members.join(worker(1)); }, ThrowsCode(ErrorCode::kUnavailable, "is ending"));
}

TEST_F(MembersTest, StrangersAndThoseWhoLeftAreToldSo) {
  const auto zero = members.join(worker(0));
  members.leave(zero);
  for (const auto id : {zero, std::uint64_t{2}}) {
    EXPECT_THAT([&] { members.put(id, "key", "value"); }, ThrowsCode(ErrorCode::kFailedPrecondition, "not registered"));
    EXPECT_THAT([&] { members.get(id, "key", Deadline::after(10s)); }, ThrowsCode(ErrorCode::kFailedPrecondition));
    EXPECT_THAT([&] { members.barrier("b", id, Deadline::after(10s)); }, ThrowsCode(ErrorCode::kFailedPrecondition));
    EXPECT_THAT([&] { members.fail(id, ErrorCode::kInternal, "x"); }, ThrowsCode(ErrorCode::kFailedPrecondition));
  }
}

TEST_F(MembersTest, ValuesAreWaitedFor) {
  const auto zero = members.join(worker(0));
  std::jthread later([&] {
    std::this_thread::sleep_for(30ms);
    members.put(zero, "port", "4711");
  });
  EXPECT_EQ(members.get(zero, "port", Deadline::after(10s)), "4711");
  EXPECT_THAT([&] { members.get(zero, "nothing", Deadline::after(30ms)); },
              ThrowsCode(ErrorCode::kDeadlineExceeded, "'nothing'"));
}

}  // namespace
}  // namespace lockstep

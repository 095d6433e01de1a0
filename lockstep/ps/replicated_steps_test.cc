#include <ATen/ATen.h>
#include <gmock/gmock.h>

#include "lockstep/ps/fields.h"
#include "lockstep/ps/held_gradients.h"
#include "lockstep/ps/sync_worker.h"
#include "tests/support/replicated.h"

// Synchronous steps of replicated variables. Note [replication], 7

namespace lockstep::ps {
namespace {

using lockstep::testing::code_of;
using lockstep::testing::on_threads;
using std::chrono::milliseconds;
using std::chrono::seconds;
using Kind = Operation::Kind;
using Updates = std::vector<ParameterClient::Update>;

constexpr std::int64_t kLarge = std::int64_t{3} << 19;  // 6 MB: in pieces from server to server, too

struct ReplicatedSteps : Replicated {
  ReplicatedSteps() {
    for (const std::size_t group : {0U, 1U}) make(group, "w", at::zeros({40}, at::kDouble), "1");
  }
  std::unique_ptr<ParameterClient> step_client() const {
    return std::make_unique<ParameterClient>(targets_of_groups(ways(), Replication::kAsk));
  }
  static Updates gradients(double of) {
    return {{0, "w", Kind::kGradient, at::full({40}, of, at::kDouble)},
            {1, "w", Kind::kGradient, at::full({40}, of, at::kDouble)}};
  }
  static SyncOptions options_of(int worker, std::uint32_t needed) {
    return {.model = "m", .worker = static_cast<std::uint32_t>(worker), .gradients_per_step = needed, .timeout = seconds(50)};
  }
  // One worker's gradients of a step, which are held.
  Contribution hold(std::uint32_t worker, std::uint64_t step, const Updates& updates) const {
    const Contribution from{worker, 70 + worker, step + 1};
    client->send(updates, {methods::kStepHold, methods::kStepStage, [&](const Sender& sender, const auto& operations) {
                             return to_bytes(StepHoldRequest{sender, "m", step, from, operations});
                           }});
    return from;
  }
  void apply(std::uint64_t step, const std::vector<Contribution>& counted) const {
    client->call_all(methods::kStepApply, to_bytes(StepApplyRequest{"m", step, counted}), soon());
  }
  // As the backup of both groups.
  void wait_until_filled(std::size_t server) const {
    ASSERT_TRUE(comes_true([&] {
      const auto groups = servers[server].host->status().groups;
      return groups.size() == 2 && std::ranges::all_of(groups, &GroupStatus::is_complete);
    }));
  }
};

TEST_F(ReplicatedSteps, AreTheMeanOnBothServers) {
  on_threads(3, [&](int index) {
    const auto mine = step_client();
    SyncWorker worker(*mine, options_of(index, 3));
    for (int i = 0; i < 10; ++i) {
      worker.begin();
      EXPECT_TRUE(worker.push(gradients(3.0 * index)));
    }
  });
  for (const std::uint32_t group : {0U, 1U}) {
    expect_same_on_both(group, "w", 10);
    EXPECT_TRUE(copy(0, group, "w").value.equal(at::full({40}, -30.0, at::kDouble)));
  }
}

TEST_F(ReplicatedSteps, GradientsThatWaitSurviveThePrimary) {
  const auto first = hold(0, 0, gradients(1));
  const auto second = hold(1, 0, gradients(3));
  stop(1);  // the primary of group 1, and the backup of group 0
  apply(0, {first, second});
  apply(0, {first, second});  // what comes again is done once
  for (const std::uint32_t group : {0U, 1U}) {
    EXPECT_EQ(copy(0, group, "w").version, 1U);
    EXPECT_TRUE(copy(0, group, "w").value.equal(at::full({40}, -2.0, at::kDouble)));
  }
  start(1);
  wait_until_filled(1);
  stop(0);
  apply(0, {first, second});  // also by who was filled with the step
  EXPECT_EQ(copy(1, 1, "w").version, 1U);
}

TEST_F(ReplicatedSteps, ANewBackupGetsTheGradientsThatWait) {
  make(1, "large", at::zeros({kLarge}), "1");
  make(1, "table", at::zeros({10, 2}), "1");
  auto updates = gradients(1);
  updates.push_back({1, "large", Kind::kGradient, at::ones({kLarge})});
  updates.push_back({1, "table", Kind::kGradientRows, at::ones({2, 2}), at::tensor({3, 7}, at::kLong)});
  const auto first = hold(0, 0, updates);
  const auto second = hold(1, 0, updates);
  stop(0);
  start(0);
  wait_until_filled(0);
  stop(1);  // server 0 has only what it was filled with
  apply(0, {first, second});
  EXPECT_TRUE(copy(0, 0, "w").value.equal(at::full({40}, -1.0, at::kDouble)));
  EXPECT_TRUE(copy(0, 1, "w").value.equal(at::full({40}, -1.0, at::kDouble)));
  EXPECT_TRUE(copy(0, 1, "large").value.equal(at::full({kLarge}, -1.0F)));
  EXPECT_TRUE(copy(0, 1, "table").value.sum(1).equal(at::tensor({0, 0, 0, -2, 0, 0, 0, -2, 0, 0}, at::kFloat)));
}

// Who has closed step 0 repeats it at the new primary; others are faster with step 1.
TEST_F(ReplicatedSteps, AnEarlierStepThatIsOnItsWayIsWaitedFor) {
  const auto zero = hold(0, 0, gradients(1));
  const auto one = hold(0, 1, gradients(4));
  const StepApplyRequest early{"m", 1, {one}};
  EXPECT_EQ(code_of([&] { client->call(0, methods::kStepApply, to_bytes(early), Deadline::after(milliseconds(200))); }),
            ErrorCode::kUnavailable);
  EXPECT_EQ(copy(0, 0, "w").version, 0U);
  apply(0, {zero});
  apply(1, {one});
  for (const std::uint32_t group : {0U, 1U}) {
    expect_same_on_both(group, "w", 2);
    EXPECT_TRUE(copy(0, group, "w").value.equal(at::full({40}, -5.0, at::kDouble)));
  }
}

// Each step takes one off, however many servers are lost under way: none is left out in one of the groups, none done twice.
TEST_F(ReplicatedSteps, AreDoneOnceInEveryGroupWhileServersAreLost) {
  std::atomic<int> counted{0};
  std::atomic<bool> is_over{false};
  {
    std::vector<std::jthread> threads;
    for (int index = 0; index < 3; ++index)
      threads.push_back(start_thread("trains", [&, index](std::stop_token) {
        const auto mine = step_client();
        SyncWorker worker(*mine, options_of(index, 2));
        while (!is_over) {
          worker.begin();
          if (worker.push(gradients(1))) ++counted;
        }
      }));
    for (const std::size_t victim : {0U, 1U, 0U}) {
      for (const auto seen = counted.load(); counted < seen + 40;) std::this_thread::yield();
      stop(victim);
      for (const auto seen = counted.load(); counted < seen + 40;) std::this_thread::yield();  // the other one goes on
      start(victim);
      EXPECT_TRUE(comes_true([&] { return keeper->is_complete(); }));
    }
    is_over = true;
  }
  SyncWorker(*client, options_of(0, 2)).settle();
  const auto steps = copy(0, 0, "w").version;
  EXPECT_GE(steps, 60U);
  for (const std::uint32_t group : {0U, 1U}) {
    expect_same_on_both(group, "w", steps);
    EXPECT_TRUE(copy(0, group, "w").value.equal(at::full({40}, -static_cast<double>(steps), at::kDouble)));
  }
}

}  // namespace
}  // namespace lockstep::ps

#include "lockstep/ps/next_view.h"

#include <gmock/gmock.h>

namespace lockstep::ps {
namespace {

using Is = SeenServer::Is;
using ::testing::HasSubstr;

// Two servers, of processes 10 and 20, that have group 0 in epoch 3: primary 0, backup 1.
struct NextView : ::testing::Test {
  NextView() {
    for (auto& server : servers) server.groups.push_back({view});
    servers[1].groups[0].is_complete = true;
  }
  std::optional<GroupView> next() const { return next_view(view, servers, {"a", "b"}); }

  GroupView view{.group = 0, .epoch = 3, .primary = 0, .primary_incarnation = 10, .backup = 1, .backup_incarnation = 20};
  std::vector<SeenServer> servers{{Is::kHere, 10}, {Is::kHere, 20}};
};

TEST_F(NextView, StaysWhileBothAreHere) { EXPECT_EQ(next(), std::nullopt); }

TEST_F(NextView, ANewGroupIsOnItsOwnServerAndTheNext) {
  const std::vector<SeenServer> three{{Is::kHere, 10}, {Is::kHere, 20}, {Is::kHere, 30}};
  const auto made = next_view({.group = 2}, three, {});
  ASSERT_TRUE(made);
  EXPECT_EQ(*made, (GroupView{2, 1, 2, 30, 0, 10}));
}

TEST_F(NextView, ACompleteBackupReplacesAPrimaryThatIsMissing) {
  servers[0].is = Is::kQuiet;
  EXPECT_EQ(next(), std::nullopt);  // it may answer yet
  servers[0].is = Is::kMissing;
  EXPECT_EQ(next(), (GroupView{0, 4, 1, 20}));
}

TEST_F(NextView, ACompleteBackupReplacesAPrimaryThatWasStartedAgain) {
  servers[0] = {Is::kHere, 11};
  EXPECT_EQ(next(), (GroupView{0, 4, 1, 20}));
}

TEST_F(NextView, AnIncompleteBackupReplacesNobody) {
  servers[1].groups[0].is_complete = false;
  servers[0].is = Is::kMissing;
  EXPECT_EQ(next(), std::nullopt);  // the primary may come back with all it has
  servers[0] = {Is::kHere, 11};
  const auto lost = next();
  ASSERT_TRUE(lost);
  EXPECT_EQ(lost->epoch, 4U);
  EXPECT_THAT(lost->lost, HasSubstr("'a', 'b'"));
  view = *lost;
  EXPECT_EQ(next(), std::nullopt);
}

TEST_F(NextView, AGroupThatWouldBeLostGoesOnFromTheNewestSnapshot) {
  servers[0] = {Is::kHere, 11, {}, {{0, 2, 50}, {1, 9, 90}}};
  servers[1].saved = {{0, 3, 40}};
  EXPECT_EQ(next(), (GroupView{0, 4, 1, 20}));  // not while there is a complete copy
  servers[1].groups[0].is_complete = false;
  GroupView restored{0, 4, 1, 20};
  restored.is_restored = true;
  EXPECT_EQ(next(), restored);
  // It cannot be read, and is not offered any more.
  view = restored;
  servers[1].saved.clear();
  servers[1].groups[0] = {view};
  servers[1].groups[0].has_failed = true;
  restored = {0, 5, 0, 11};
  restored.is_restored = true;
  EXPECT_EQ(next(), restored);
  servers[0].saved.clear();
  EXPECT_TRUE(next()->is_lost());
}

TEST_F(NextView, ServersThatBeginAnewBeginWithSnapshots) {
  servers = {{Is::kHere, 10}, {Is::kHere, 20, {}, {{0, 7, 1}}}};
  const auto made = next_view({.group = 0}, servers, {});
  ASSERT_TRUE(made);
  EXPECT_EQ(made->epoch, 8U);
  EXPECT_EQ(made->primary, 1U);
  EXPECT_TRUE(made->is_restored);
  // Its backup comes after.
  const auto next = next_view(*made, servers, {});
  ASSERT_TRUE(next);
  EXPECT_EQ(next->backup, 0U);
  EXPECT_TRUE(next->is_restored);
}

TEST_F(NextView, ABackupOfAnOlderViewReplacesNobody) {
  servers[1].groups[0].view.epoch = 2;
  servers[0].is = Is::kMissing;
  EXPECT_EQ(next(), std::nullopt);
}

TEST_F(NextView, WhenBothWereStartedAgainTheGroupIsLost) {
  servers = {{Is::kHere, 11}, {Is::kMissing, 20}};
  EXPECT_EQ(next(), std::nullopt);  // the backup may come back, complete
  servers[1] = {Is::kHere, 21};
  const auto lost = next();
  ASSERT_TRUE(lost && lost->is_lost());
  EXPECT_THAT(lost->lost, HasSubstr("/job:ps/task:1 had no complete copy"));
}

TEST_F(NextView, APrimaryGoesOnAloneWhenItsBackupIsMissing) {
  servers[1].is = Is::kMissing;
  const auto alone = next();
  EXPECT_EQ(alone, (GroupView{0, 4, 0, 10}));
  view = *alone;
  EXPECT_EQ(next(), std::nullopt);
  servers[1] = {Is::kHere, 21};
  EXPECT_EQ(next(), (GroupView{0, 5, 0, 10, 1, 21}));
}

TEST_F(NextView, APrimaryThatHasLostTouchGetsItsBackupAnew) {
  servers[0].groups[0].needs_fill = true;
  EXPECT_EQ(next(), (GroupView{0, 4, 0, 10, 1, 20}));
}

}  // namespace
}  // namespace lockstep::ps

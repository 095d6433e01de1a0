#include "lockstep/collective/rendezvous.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <functional>
#include <optional>
#include <string>
#include <thread>

namespace lockstep {
namespace {

// Runs body(rank) on `size` threads and returns what each threw.
std::vector<std::optional<Error>> on_ranks(int size, const std::function<void(int)>& body) {
  std::vector<std::optional<Error>> errors(static_cast<std::size_t>(size));
  {
    std::vector<std::jthread> threads;
    for (int rank = 0; rank < size; ++rank) {
      threads.emplace_back([&, rank] {
        try {
          body(rank);
        } catch (const Error& error) {
          errors[static_cast<std::size_t>(rank)] = error;
        }
      });
    }
  }
  return errors;
}

TEST(Rendezvous, AWaitThatSomebodyElseWatchesHasNoTimeOfItsOwn) {
  Rendezvous meeting(2, "replica");
  meeting.set_timeout(std::chrono::milliseconds(50));
  const auto errors = on_ranks(2, [&](int rank) {
    if (rank == 0) std::this_thread::sleep_for(std::chrono::milliseconds(300));
    meeting.meet(rank, "point", Rendezvous::Patience::kWatched);
  });
  for (const auto& error : errors) EXPECT_FALSE(error.has_value()) << error->what();
}

TEST(Rendezvous, MoreThreadsThanCoresPassAndLeaveWithoutComplaint) {
  for (const int size : {1, 2, 3, 8}) {
    Rendezvous meeting(size, "replica");
    for (int round = 0; round < 60; ++round) {
      const auto errors = on_ranks(size, [&](int rank) {
        for (int k = 0; k < 5; ++k) meeting.meet(rank, "point");
        meeting.leave(rank);
      });
      for (const auto& error : errors) ASSERT_FALSE(error.has_value()) << error->what();
      meeting.reset();
    }
  }
}

TEST(Rendezvous, NobodyPassesBeforeTheLastHasCome) {
  Rendezvous meeting(4, "replica");
  std::atomic<int> come{0};
  std::atomic<int> seen_too_few{0};
  on_ranks(4, [&](int rank) {
    for (int k = 1; k <= 200; ++k) {
      come.fetch_add(1);
      meeting.meet(rank, "point");
      if (come.load() < 4 * k) seen_too_few.fetch_add(1);
    }
  });
  EXPECT_EQ(seen_too_few.load(), 0);
}

TEST(Rendezvous, ARankThatLeavesIsNamedToThoseWhoWait) {
  Rendezvous meeting(2, "replica");
  const auto errors = on_ranks(2, [&](int rank) {
    meeting.meet(rank, "first");
    if (rank == 0) meeting.meet(rank, "second");
    meeting.leave(rank);
  });
  ASSERT_TRUE(errors[0].has_value());
  EXPECT_EQ(errors[0]->code(), ErrorCode::kFailedPrecondition);
  EXPECT_THAT(errors[0]->what(), ::testing::HasSubstr("replica 1 returned after 1 meeting point"));
  EXPECT_FALSE(errors[1].has_value());
}

TEST(Rendezvous, DifferentPointsAreNamed) {
  Rendezvous meeting(2, "replica");
  const auto errors = on_ranks(2, [&](int rank) { meeting.meet(rank, rank == 0 ? "all_reduce" : "all_gather"); });
  for (const auto& error : errors) {
    ASSERT_TRUE(error.has_value());
    EXPECT_EQ(error->code(), ErrorCode::kFailedPrecondition);
    EXPECT_THAT(error->what(), ::testing::AllOf(::testing::HasSubstr("all_reduce"), ::testing::HasSubstr("all_gather")));
  }
}

TEST(Rendezvous, AbortWakesWhoWaitsAndResetMakesItUsable) {
  Rendezvous meeting(2, "replica");
  const auto errors = on_ranks(2, [&](int rank) {
    if (rank == 1) return meeting.abort("planted");
    meeting.meet(rank, "point");
  });
  ASSERT_TRUE(errors[0].has_value());
  EXPECT_EQ(errors[0]->code(), ErrorCode::kAborted);
  meeting.reset();
  for (const auto& error : on_ranks(2, [&](int rank) { meeting.meet(rank, "point"); })) EXPECT_FALSE(error.has_value());
}

TEST(Rendezvous, ATimeoutNamesWhoIsMissing) {
  Rendezvous meeting(3, "replica");
  meeting.set_timeout(std::chrono::milliseconds(50));
  const auto errors = on_ranks(2, [&](int rank) { meeting.meet(rank, "point"); });
  for (const auto& error : errors) {
    ASSERT_TRUE(error.has_value());
    EXPECT_EQ(error->code(), ErrorCode::kDeadlineExceeded);
    EXPECT_THAT(error->what(), ::testing::HasSubstr("for replica 2"));
  }
}

}  // namespace
}  // namespace lockstep

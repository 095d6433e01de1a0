#include "lockstep/base/thread.h"

#include <gtest/gtest.h>
#include <pthread.h>
#include <sched.h>

#include <atomic>

namespace lockstep {
namespace {

std::string name_inside(const std::string& name) {
  std::string seen;
  {
    const auto thread = start_thread(name, [&](const std::stop_token&) {
      char text[32] = "";
      pthread_getname_np(pthread_self(), text, sizeof(text));
      seen = text;
    });
  }
  return seen;
}

TEST(Thread, CarriesItsName) { EXPECT_EQ(name_inside("lockstep:r3"), "lockstep:r3"); }

TEST(Thread, ALongNameIsCutToWhatTheSystemShows) { EXPECT_EQ(name_inside("lockstep:prefetch thread 12"), "lockstep:prefet"); }

TEST(Thread, TheDestructorAsksForTheEndAndWaitsForIt) {
  std::atomic<bool> has_ended{false};
  {
    const auto thread = start_thread("lockstep:test", [&](const std::stop_token& stop) {
      while (!stop.stop_requested()) sched_yield();
      has_ended.store(true);
    });
    EXPECT_FALSE(has_ended.load());
  }
  EXPECT_TRUE(has_ended.load());
}

TEST(AvailableCores, FollowTheAffinityOfTheThread) {
  cpu_set_t before;
  ASSERT_EQ(sched_getaffinity(0, sizeof(before), &before), 0);
  EXPECT_EQ(available_cores(), CPU_COUNT(&before));
  const auto on_one_core = start_thread("lockstep:test", [&](const std::stop_token&) {
    cpu_set_t one;
    CPU_ZERO(&one);
    for (int cpu = 0; cpu < CPU_SETSIZE && CPU_COUNT(&one) == 0; ++cpu)
      if (CPU_ISSET(cpu, &before)) CPU_SET(cpu, &one);
    ASSERT_EQ(sched_setaffinity(0, sizeof(one), &one), 0);
    EXPECT_EQ(available_cores(), 1);
  });
}

}  // namespace
}  // namespace lockstep

#include "lockstep/serve/share_cores.h"

#include <gtest/gtest.h>

namespace lockstep::internal {
namespace {

TEST(ShareCores, TasksOfOneHostDivideItsCores) {
  const ClusterSpec spec({{"chief", {"a:1"}}, {"ps", {"a:2", "b:1"}}, {"worker", {"a:3", "a:4", "c:1"}}});
  EXPECT_EQ(threads_of_task(spec, {"worker", 0}, 8), 2);  // three tasks on a
  EXPECT_EQ(threads_of_task(spec, {"ps", 0}, 9), 3);
  EXPECT_EQ(threads_of_task(spec, {"ps", 1}, 8), 8);
  EXPECT_EQ(threads_of_task(spec, {"worker", 2}, 8), 8);
  EXPECT_EQ(threads_of_task(spec, {"worker", 1}, 2), 1);
}

TEST(ShareCores, AHostIsAllBeforeThePort) {
  const ClusterSpec spec({{"ps", {"[::1]:1"}}, {"worker", {"[::1]:2", "[::2]:2"}}});
  EXPECT_EQ(threads_of_task(spec, {"worker", 0}, 4), 2);
  EXPECT_EQ(threads_of_task(spec, {"worker", 1}, 4), 4);
}

}  // namespace
}  // namespace lockstep::internal

#include "lockstep/base/str.h"

#include <gtest/gtest.h>

#include <set>
#include <vector>

namespace lockstep {
namespace {

TEST(Str, WritesItsPartsOneAfterTheOther) {
  EXPECT_EQ(str("rank ", 2, ": gone"), "rank 2: gone");
  EXPECT_EQ(str(1.5, ' ', std::string("x"), std::size_t{7}), "1.5 x7");
}

TEST(Str, OfNothingIsEmpty) { EXPECT_EQ(str(), ""); }

TEST(Str, DoesNotRememberThePreviousCall) {
  EXPECT_EQ(str("a"), "a");
  EXPECT_EQ(str("b"), "b");
}

TEST(Upper, ChangesLettersOnly) {
  EXPECT_EQ(upper("gpu:1_x"), "GPU:1_X");
  EXPECT_EQ(upper(""), "");
}

TEST(Join, PutsTheSeparatorBetweenThePartsOnly) {
  EXPECT_EQ(join(", ", std::vector<std::string>{"a", "b", "c"}), "a, b, c");
  EXPECT_EQ(join(", ", std::vector<std::string>{"a"}), "a");
  EXPECT_EQ(join(", ", std::vector<std::string>{}), "");
}

TEST(Join, KeepsEmptyParts) { EXPECT_EQ(join("-", std::vector<std::string>{"", "a", ""}), "-a-"); }

TEST(Join, TakesAnyRangeOfWhatCanBeWritten) {
  EXPECT_EQ(join("", std::set<int>{3, 1, 2}), "123");
  EXPECT_EQ(join(" ", std::vector<double>{0.5, 2}), "0.5 2");
}

}  // namespace
}  // namespace lockstep

#include "lockstep/base/str.h"

#include <gtest/gtest.h>

#include <cmath>
#include <limits>
#include <locale>
#include <set>
#include <vector>

#include "lockstep/base/number.h"
#include "lockstep/base/on_exit.h"

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

// As in German.
struct Grouped : std::numpunct<char> {
  char do_decimal_point() const override { return ','; }
  char do_thousands_sep() const override { return '.'; }
  std::string do_grouping() const override { return "\3"; }
};

TEST(Str, DoesNotDependOnTheLocale) {
  const auto before = std::locale::global(std::locale(std::locale::classic(), new Grouped));
  const OnExit back([&] { std::locale::global(before); });
  std::ostringstream plain;
  plain << 5056 << " " << 0.5;
  ASSERT_EQ(plain.str(), "5.056 0,5");
  EXPECT_EQ(str(5056, " ", 0.5), "5056 0.5");
  EXPECT_EQ(join(" ", std::vector<double>{5056, 0.5}), "5056 0.5");
}

TEST(ExactText, IsShortAndReadsBackBitForBit) {
  EXPECT_EQ(exact_text(0.1), "0.1");
  EXPECT_EQ(exact_text(std::int64_t{-5056}), "-5056");
  using Limits = std::numeric_limits<double>;
  for (const double value : {0.1, 1.0 / 3, -0.0, 1e300, Limits::denorm_min(), Limits::max(), Limits::infinity()}) {
    const auto back = whole_number<double>(exact_text(value));
    ASSERT_TRUE(back) << value;
    EXPECT_EQ(*back, value);
    EXPECT_EQ(std::signbit(*back), std::signbit(value));
  }
  EXPECT_TRUE(std::isnan(*whole_number<double>(exact_text(std::nan("")))));
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

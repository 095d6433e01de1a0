#include "lockstep/base/error.h"

#include <array>
#include <set>

#include "tests/support/testing.h"

namespace lockstep {
namespace {

using testing::ThrowsCode;

constexpr std::array kAllCodes = {
    ErrorCode::kInvalidArgument, ErrorCode::kFailedPrecondition, ErrorCode::kOutOfRange, ErrorCode::kNotFound,
    ErrorCode::kUnavailable,     ErrorCode::kDeadlineExceeded,   ErrorCode::kAborted,    ErrorCode::kCancelled,
    ErrorCode::kDataLoss,        ErrorCode::kUnimplemented,      ErrorCode::kInternal};

TEST(ErrorCode, EveryCodeHasItsOwnName) {
  std::set<std::string> names;
  for (const auto code : kAllCodes) names.insert(name_of(code));
  EXPECT_EQ(names.size(), kAllCodes.size());
  EXPECT_STREQ(name_of(ErrorCode::kDataLoss), "kDataLoss");
}

TEST(ErrorCode, MissingPeersAndMissingTimeMayBeTriedAgain) {
  std::set<ErrorCode> retryable;
  for (const auto code : kAllCodes)
    if (is_retryable(code)) retryable.insert(code);
  EXPECT_THAT(retryable, ::testing::ElementsAre(ErrorCode::kUnavailable, ErrorCode::kDeadlineExceeded, ErrorCode::kAborted));
}

TEST(Error, TheTextBeginsWithTheCode) {
  const Error error(ErrorCode::kNotFound, "no such row");
  EXPECT_EQ(error.code(), ErrorCode::kNotFound);
  EXPECT_STREQ(error.what(), "kNotFound: no such row");
  EXPECT_TRUE(error.others().empty());
}

TEST(Error, WithOthersIsTheSameErrorWithTheirMessages) {
  const Error error(ErrorCode::kInternal, "first");
  const auto with = error.with_others({"replica 1: second", "replica 2: third"});
  EXPECT_EQ(with.code(), error.code());
  EXPECT_STREQ(with.what(), error.what());
  EXPECT_THAT(with.others(), ::testing::ElementsAre("replica 1: second", "replica 2: third"));
  EXPECT_TRUE(error.others().empty());
}

TEST(Error, RequireThrowsWhenTheConditionDoesNotHold) {
  EXPECT_NO_THROW(require(true, "never said"));
  EXPECT_THAT([] { require(false, "a batch has rows"); }, ThrowsCode(ErrorCode::kInvalidArgument, "a batch has rows"));
}

}  // namespace
}  // namespace lockstep

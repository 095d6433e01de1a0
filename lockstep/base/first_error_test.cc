#include "lockstep/base/first_error.h"

#include <atomic>
#include <stdexcept>

#include "tests/support/testing.h"

namespace lockstep {
namespace {

using ::testing::ElementsAre;
using ::testing::IsEmpty;
using testing::on_threads;
using testing::ThrowsCode;

// Throws `error` and lets `first` capture it, as a replica's thread does.
template <typename E>
void capture(FirstError& first, const std::string& who, const E& error) {
  try {
    throw error;
  } catch (...) {
    first.capture(who);
  }
}

auto with_others(ErrorCode code, const ::testing::Matcher<const std::vector<std::string>&>& others) {
  return ::testing::Throws<Error>(::testing::AllOf(::testing::Property("code()", &Error::code, code),
                                                   ::testing::Property("others()", &Error::others, others)));
}

TEST(FirstError, WithoutAnErrorNothingIsThrown) {
  FirstError first;
  EXPECT_FALSE(first.has_error());
  EXPECT_NO_THROW(first.rethrow_if_any());
}

TEST(FirstError, TheOnlyErrorIsThrownAsItWas) {
  FirstError first;
  capture(first, "replica 0", Error(ErrorCode::kDataLoss, "torn"));
  EXPECT_TRUE(first.has_error());
  EXPECT_THAT([&] { first.rethrow_if_any(); }, with_others(ErrorCode::kDataLoss, IsEmpty()));
}

TEST(FirstError, TheFirstOfSeveralIsThrownAndTheOthersAreAttachedInOrder) {
  FirstError first;
  capture(first, "replica 2", Error(ErrorCode::kNotFound, "first"));
  capture(first, "replica 0", std::runtime_error("second"));
  capture(first, "replica 1", Error(ErrorCode::kInternal, "third"));
  EXPECT_THAT([&] { first.rethrow_if_any(); },
              with_others(ErrorCode::kNotFound, ElementsAre("replica 0: second", "replica 1: kInternal: third")));
}

TEST(FirstError, AConsequenceNeverHidesItsCause) {
  FirstError first;
  capture(first, "replica 0", Error(ErrorCode::kAborted, "another one failed"));
  capture(first, "replica 1", Error(ErrorCode::kOutOfRange, "the cause"));
  capture(first, "replica 2", Error(ErrorCode::kAborted, "another one failed"));
  EXPECT_THAT([&] { first.rethrow_if_any(); }, with_others(ErrorCode::kOutOfRange, IsEmpty()));
}

TEST(FirstError, WhenAllAreConsequencesTheFirstIsThrown) {
  FirstError first;
  capture(first, "replica 0", Error(ErrorCode::kAborted, "aborted from outside"));
  capture(first, "replica 1", Error(ErrorCode::kAborted, "later"));
  EXPECT_THAT([&] { first.rethrow_if_any(); }, ThrowsCode(ErrorCode::kAborted, "aborted from outside"));
}

TEST(FirstError, AnotherLibrarysExceptionKeepsItsType) {
  FirstError first;
  capture(first, "replica 0", std::out_of_range("row 7"));
  capture(first, "replica 1", Error(ErrorCode::kInternal, "later"));
  EXPECT_THAT([&] { first.rethrow_if_any(); }, ::testing::ThrowsMessage<std::out_of_range>("row 7"));
}

TEST(FirstError, AThrownNumberComesBackAsANumber) {
  FirstError first;
  capture(first, "replica 0", 42);
  EXPECT_THROW(first.rethrow_if_any(), int);
}

TEST(FirstError, RethrowingForgets) {
  FirstError first;
  capture(first, "replica 0", Error(ErrorCode::kInternal, "once"));
  EXPECT_THAT([&] { first.rethrow_if_any(); }, ThrowsCode(ErrorCode::kInternal));
  EXPECT_FALSE(first.has_error());
  EXPECT_NO_THROW(first.rethrow_if_any());
}

TEST(FirstError, ClearForgetsEverything) {
  FirstError first;
  capture(first, "replica 0", Error(ErrorCode::kInternal, "old"));
  first.clear();
  EXPECT_FALSE(first.has_error());
  EXPECT_NO_THROW(first.rethrow_if_any());
}

TEST(FirstError, NothingIsLostWhenManyThreadsFailAtOnce) {
  FirstError first;
  on_threads(8, [&](int thread) {
    for (int k = 0; k < 50; ++k) capture(first, str("thread ", thread), Error(ErrorCode::kInternal, "planted"));
  });
  EXPECT_THAT([&] { first.rethrow_if_any(); }, with_others(ErrorCode::kInternal, ::testing::SizeIs(8 * 50 - 1)));
}

TEST(Describe, GivesTheTextOfAnyException) {
  EXPECT_EQ(describe(std::make_exception_ptr(std::runtime_error("torn"))), "torn");
  EXPECT_EQ(describe(std::make_exception_ptr(Error(ErrorCode::kInternal, "ours"))), "kInternal: ours");
  EXPECT_EQ(describe(std::make_exception_ptr(3)), "an exception that is not a std::exception");
}

}  // namespace
}  // namespace lockstep

#include "lockstep/base/log.h"

#include <cstdlib>
#include <stdexcept>

#include "tests/support/testing.h"

namespace lockstep {
namespace {

using ::testing::ElementsAre;
using ::testing::ExitedWithCode;
using ::testing::IsEmpty;
using testing::LogCapture;
using testing::on_threads;

TEST(Log, LinesReachTheSinkWithTheirLevel) {
  const LogCapture captured;
  log_info("one");
  log_warning("two");
  log(LogLevel::kError, "three");
  EXPECT_THAT(captured.at(LogLevel::kInfo), ElementsAre("one"));
  EXPECT_THAT(captured.warnings(), ElementsAre("two"));
  EXPECT_THAT(captured.at(LogLevel::kError), ElementsAre("three"));
}

TEST(Log, LinesBelowTheThresholdAreDropped) {
  const LogCapture captured;
  set_log_level(LogLevel::kError);
  EXPECT_EQ(log_level(), LogLevel::kError);
  log_info("dropped");
  log_warning("dropped");
  log(LogLevel::kError, "kept");
  EXPECT_THAT(captured.at(LogLevel::kInfo), IsEmpty());
  EXPECT_THAT(captured.warnings(), IsEmpty());
  EXPECT_THAT(captured.at(LogLevel::kError), ElementsAre("kept"));
}

TEST(Log, NothingIsWrittenAtTheHighestThreshold) {
  const LogCapture captured;
  set_log_level(LogLevel::kNothing);
  log(LogLevel::kError, "dropped");
  EXPECT_THAT(captured.at(LogLevel::kError), IsEmpty());
}

TEST(Log, OnceIsOncePerMessage) {
  const LogCapture captured;
  for (int k = 0; k < 3; ++k) {
    log_once(LogLevel::kWarning, "log_test: first");
    log_once(LogLevel::kWarning, "log_test: second");
  }
  EXPECT_THAT(captured.warnings(), ElementsAre("log_test: first", "log_test: second"));
}

TEST(Log, AMessageThatWasDroppedHasNotBeenSaid) {
  const LogCapture captured;
  set_log_level(LogLevel::kError);
  log_once(LogLevel::kWarning, "log_test: dropped at first");
  set_log_level(LogLevel::kInfo);
  log_once(LogLevel::kWarning, "log_test: dropped at first");
  EXPECT_THAT(captured.warnings(), ElementsAre("log_test: dropped at first"));
}

TEST(Log, OnceIsOnceWhenManyThreadsSayIt) {
  const LogCapture captured;
  on_threads(8, [](int) {
    for (int k = 0; k < 100; ++k) log_once(LogLevel::kWarning, "log_test: said by all");
  });
  EXPECT_THAT(captured.warnings(), ElementsAre("log_test: said by all"));
}

TEST(Log, ASinkThatThrowsDoesNotStopTheCaller) {
  const LogCapture captured;  // restores level and sink
  int calls = 0;
  set_log_sink([&](LogLevel, const std::string&) {
    ++calls;
    throw std::runtime_error("disk full");
  });
  log_warning("lost");
  log_warning("lost, too");
  EXPECT_EQ(calls, 2);
}

TEST(Log, ASinkMayWriteALineItself) {
  const LogCapture captured;  // restores level and sink
  std::vector<std::string> lines;
  set_log_sink([&](LogLevel, const std::string& message) {
    lines.push_back(message);
    if (message == "outer") log_warning("inner");
  });
  log_warning("outer");
  EXPECT_THAT(lines, ElementsAre("outer", "inner"));
}

// What happens once a process, and what reaches standard error, is seen from a process of its own.
class LogProcess : public ::testing::Test {
 protected:
  void SetUp() override { GTEST_FLAG_SET(death_test_style, "threadsafe"); }
};

TEST_F(LogProcess, ALineOnStandardErrorNamesUsAndTheLevel) {
  const auto write = [] {
    set_log_level(LogLevel::kInfo);
    log_info("planted info");
    log_warning("planted warning");
    log(LogLevel::kError, "planted error");
    std::_Exit(0);
  };
  EXPECT_EXIT(write(), ExitedWithCode(0),
              "\\[lockstep I\\] planted info\n\\[lockstep W\\] planted warning\n\\[lockstep E\\] planted error\n");
}

TEST_F(LogProcess, TheThresholdAtStartComesFromTheEnvironment) {
  const auto level_with = [](const char* value) {
    setenv("LOCKSTEP_LOG", value, 1);
    std::_Exit(10 + static_cast<int>(log_level()));
  };
  EXPECT_EXIT(level_with("info"), ExitedWithCode(10), "");
  EXPECT_EXIT(level_with("warning"), ExitedWithCode(11), "");
  EXPECT_EXIT(level_with("error"), ExitedWithCode(12), "");
  EXPECT_EXIT(level_with("nothing"), ExitedWithCode(13), "");
  EXPECT_EXIT(level_with("loud"), ExitedWithCode(11), "");
}

}  // namespace
}  // namespace lockstep

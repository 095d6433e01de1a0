#pragma once

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <chrono>
#include <functional>
#include <mutex>
#include <optional>
#include <ostream>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "lockstep/base/error.h"
#include "lockstep/base/log.h"
#include "lockstep/base/str.h"

// What the unit tests of all folders share.

namespace lockstep {

inline void PrintTo(ErrorCode code, std::ostream* out) { *out << name_of(code); }

}  // namespace lockstep

namespace lockstep::testing {

// EXPECT_THAT([&] { call(); }, ThrowsCode(ErrorCode::kInvalidArgument)): the call throws lockstep::Error with that code,
// and with every one of `words` in its text.
template <typename... Words>
auto ThrowsCode(ErrorCode code, const Words&... words) {
  return ::testing::Throws<Error>(
      ::testing::AllOf(::testing::Property("code()", &Error::code, code),
                       ::testing::Property("what()", &Error::what, ::testing::HasSubstr(words))...));
}

// The code of the lockstep::Error that `body` throws; nothing when it throws none.
template <typename Body>
std::optional<ErrorCode> code_of(Body&& body) {
  try {
    body();
  } catch (const Error& error) {
    return error.code();
  }
  return std::nullopt;
}

// "CPU:0", "CPU:1", ...
inline std::vector<std::string> cpus(int count) {
  std::vector<std::string> names;
  for (int k = 0; k < count; ++k) names.push_back(str("CPU:", k));
  return names;
}

// Calls body(0) .. body(count - 1) on a thread each and waits for all.
inline void on_threads(int count, const std::function<void(int)>& body) {
  std::vector<std::jthread> threads;
  for (int i = 0; i < count; ++i) threads.emplace_back([&body, i] { body(i); });
}

// How long `body` takes; what it throws is dropped.
template <typename Body>
std::chrono::duration<double> time_of(Body&& body) {
  const auto start = std::chrono::steady_clock::now();
  try {
    body();
  } catch (const std::exception&) {
  }
  return std::chrono::steady_clock::now() - start;
}

// While it lives, log lines of all levels come here.
class LogCapture {
 public:
  LogCapture() : level_(log_level()) {
    set_log_level(LogLevel::kInfo);
    set_log_sink([this](LogLevel level, const std::string& message) {
      const std::lock_guard lock(mu_);
      lines_.emplace_back(level, message);
    });
  }
  ~LogCapture() {
    set_log_sink(nullptr);
    set_log_level(level_);
  }
  LogCapture(const LogCapture&) = delete;
  LogCapture& operator=(const LogCapture&) = delete;

  std::vector<std::string> at(LogLevel level) const {
    const std::lock_guard lock(mu_);
    std::vector<std::string> messages;
    for (const auto& [l, message] : lines_)
      if (l == level) messages.push_back(message);
    return messages;
  }
  std::vector<std::string> warnings() const { return at(LogLevel::kWarning); }

 private:
  const LogLevel level_;
  mutable std::mutex mu_;
  std::vector<std::pair<LogLevel, std::string>> lines_;  // guarded by mu_
};

}  // namespace lockstep::testing

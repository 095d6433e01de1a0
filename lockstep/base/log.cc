#include "lockstep/base/log.h"
#include "lockstep/base/environment.h"

#include <cstdio>
#include <mutex>
#include <set>
#include <string_view>
#include <utility>

#include "lockstep/base/str.h"

namespace lockstep {
namespace {

LogLevel level_from_environment() {
  const auto level = Environment().get("LOCKSTEP_LOG").value_or("");
  if (level == "info") return LogLevel::kInfo;
  if (level == "error") return LogLevel::kError;
  if (level == "nothing") return LogLevel::kNothing;
  return LogLevel::kWarning;
}

struct Logger {
  std::mutex mu;
  LogLevel threshold = level_from_environment();           // guarded by mu
  std::function<void(LogLevel, const std::string&)> sink;  // guarded by mu
  std::set<std::string> said;                              // guarded by mu
};

// Never destroyed: replica threads may still write while static objects are torn down.
Logger& logger() {
  static auto* instance = new Logger;
  return *instance;
}

}  // namespace

void log(LogLevel level, const std::string& message) noexcept {
  try {
    std::function<void(LogLevel, const std::string&)> sink;
    {
      const std::lock_guard lock(logger().mu);
      if (level < logger().threshold) return;
      sink = logger().sink;
    }
    if (sink) return sink(level, message);
    constexpr std::string_view kLetters = "IWE ";
    const auto line = str("[lockstep ", kLetters[static_cast<std::size_t>(level)], "] ", message, "\n");
    std::fwrite(line.data(), 1, line.size(), stderr);
  } catch (...) {  // a line that cannot be written must not stop the training
  }
}

void log_once(LogLevel level, const std::string& message) noexcept {
  try {
    const std::lock_guard lock(logger().mu);
    if (level < logger().threshold || !logger().said.insert(message).second) return;
  } catch (...) {  // no memory to remember it: better said twice than not at all
  }
  log(level, message);
}

void set_log_level(LogLevel level) noexcept {
  const std::lock_guard lock(logger().mu);
  logger().threshold = level;
}

LogLevel log_level() noexcept {
  const std::lock_guard lock(logger().mu);
  return logger().threshold;
}

void set_log_sink(std::function<void(LogLevel, const std::string&)> sink) {
  const std::lock_guard lock(logger().mu);
  logger().sink = std::move(sink);
}

}  // namespace lockstep

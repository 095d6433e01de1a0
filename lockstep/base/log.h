#pragma once

#include <functional>
#include <string>

namespace lockstep {

enum class LogLevel { kInfo = 0, kWarning = 1, kError = 2, kNothing = 3 };

// Writes one line "[lockstep W] message" to standard error, unless the level is below the threshold.
// Thread-safe; lines of different threads never mix.
void log(LogLevel level, const std::string& message) noexcept;

inline void log_info(const std::string& message) noexcept { log(LogLevel::kInfo, message); }
inline void log_warning(const std::string& message) noexcept { log(LogLevel::kWarning, message); }

// The same message is written once per process, whoever says it first.
void log_once(LogLevel level, const std::string& message) noexcept;

// Lines below `level` are dropped. At start: LOCKSTEP_LOG = info | warning | error | nothing, else warning.
void set_log_level(LogLevel level) noexcept;
LogLevel log_level() noexcept;

// Sends the lines to `sink` in place of standard error (tests, programs with their own logger); nullptr undoes it.
void set_log_sink(std::function<void(LogLevel, const std::string&)> sink);

}  // namespace lockstep

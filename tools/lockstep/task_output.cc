#include "tools/lockstep/task_output.h"

#include <cerrno>
#include <utility>

#include "lockstep/base/errno_text.h"
#include "lockstep/base/error.h"
#include "lockstep/base/str.h"

namespace lockstep::tool {
namespace {

constexpr std::size_t kKeptLines = 20;
constexpr std::size_t kLongestLine = 64 << 10;

std::FILE* open_log(const std::string& path) {
  if (path.empty()) return nullptr;
  if (std::FILE* file = std::fopen(path.c_str(), "we")) return file;
  throw Error(ErrorCode::kFailedPrecondition, str("cannot write the log file '", path, "' (", errno_text(errno), ")"));
}

}  // namespace

TaskOutput::TaskOutput(Printer& printer, const std::string& name, const std::string& log_file)
    : printer_(printer), prefix_(str("[", name, "] ")), log_file_(log_file), log_(open_log(log_file), std::fclose) {}

void TaskOutput::take(std::string_view bytes) {
  write_log(bytes);
  for (const char c : bytes) {
    if (c == '\n' && was_return_) printer_.print("\n");  // the line has ended already
    else if (c == '\n' || c == '\r') finish_line(c);
    else line_ += c;
    was_return_ = c == '\r';
    if (line_.size() >= kLongestLine) finish_line('\n');
  }
}

// The tasks go on without it.
void TaskOutput::write_log(std::string_view bytes) {
  if (!log_) return;
  if (std::fwrite(bytes.data(), 1, bytes.size(), log_.get()) == bytes.size() && std::fflush(log_.get()) == 0) return;
  say(printer_, str("the log file '", log_file_, "' cannot be written (", errno_text(errno), "): it ends here"));
  log_.reset();
}

void TaskOutput::finish() {
  if (!line_.empty()) finish_line('\n');
}

// A carriage return ends a line too, so that progress bars of several tasks do not run into each other.
void TaskOutput::finish_line(char end) {
  if (line_.empty() && end == '\r') return;
  printer_.print(str(prefix_, line_, end));
  last_lines_.push_back(std::move(line_));
  line_.clear();
  if (last_lines_.size() > kKeptLines) last_lines_.pop_front();
}

std::unique_ptr<TaskOutput> make_output_again(Printer& printer, const std::string& name, const std::string& log_file) {
  try {
    return std::make_unique<TaskOutput>(printer, name, log_file);
  } catch (const Error& error) {
    say(printer, str(error.message(), "; ", name, " goes on without it"));
    return std::make_unique<TaskOutput>(printer, name, "");
  }
}

}  // namespace lockstep::tool

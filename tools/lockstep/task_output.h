#pragma once

#include <cstdio>
#include <deque>
#include <memory>
#include <string>
#include <string_view>

#include "tools/lockstep/printer.h"

namespace lockstep::tool {

// What one task writes: passed on line by line with "[worker 2] " before each, into a file as it is, and its last lines
// are kept.
class TaskOutput {
 public:
  // `name` stands before the lines; `log_file` may be empty. Throws kFailedPrecondition when it cannot be written.
  TaskOutput(Printer& printer, const std::string& name, const std::string& log_file);

  void take(std::string_view bytes);
  // The task has ended: a line that it did not finish is one.
  void finish();
  const std::deque<std::string>& last_lines() const noexcept { return last_lines_; }

 private:
  void finish_line(char end);
  void write_log(std::string_view bytes);

  Printer& printer_;
  const std::string prefix_;
  const std::string log_file_;
  std::unique_ptr<std::FILE, int (*)(std::FILE*)> log_;  // null: none, or it cannot be written any more
  std::string line_;
  bool was_return_ = false;  // the last character
  std::deque<std::string> last_lines_;
};

// For a task that is started again while others run: where the file cannot be written, it is said and there is none.
std::unique_ptr<TaskOutput> make_output_again(Printer& printer, const std::string& name, const std::string& log_file);

}  // namespace lockstep::tool

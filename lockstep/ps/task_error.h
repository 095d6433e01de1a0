#pragma once

#include <string>
#include <utility>

#include "lockstep/base/error.h"

namespace lockstep {

// An error of a call to another task of the job that is about that task, not about what was asked for: it cannot be reached,
// or has ended the call. Says which task.
class TaskError : public Error {
 public:
  // `task` is its name: "/job:ps/task:0".
  TaskError(ErrorCode code, std::string task, const std::string& message) : Error(code, message), task_(std::move(task)) {}

  const std::string& task() const noexcept { return task_; }
  bool is_of_parameter_server() const noexcept { return task_.starts_with("/job:ps/"); }

 private:
  std::string task_;
};

// A parameter server was away too often for the work to go on. Recovery: start it and the coordinator again, create the
// variables, and restore a checkpoint.
class PsUnavailable : public TaskError {
 public:
  PsUnavailable(std::string task, const std::string& message) : TaskError(ErrorCode::kUnavailable, std::move(task), message) {}
};

}  // namespace lockstep

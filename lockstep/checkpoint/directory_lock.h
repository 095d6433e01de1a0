#pragma once

#include <string>

namespace lockstep {

// The right to write checkpoints into a directory: one process has it at a time, and a process that dies loses it.
class DirectoryLock {
 public:
  // Takes the file ".lock" in `directory`, which must be there. Throws kFailedPrecondition that says which process on which
  // machine has it; errors as FileLayer's when the file cannot be made.
  explicit DirectoryLock(const std::string& directory);
  ~DirectoryLock();
  DirectoryLock(const DirectoryLock&) = delete;
  DirectoryLock& operator=(const DirectoryLock&) = delete;

  static constexpr const char* kFileName = ".lock";

 private:
  int descriptor_ = -1;
};

}  // namespace lockstep

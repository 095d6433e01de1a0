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

// The right to write one file, for as long as a training that will: one process has it at a time, and one that dies loses it.
class FileLock {
 public:
  // Takes the file ".NAME.lock" beside `path`; so whoever is going to write learns at once that it cannot. Throws
  // kFailedPrecondition that says which process on which machine has it, or why the folder cannot be written to.
  enum class Folder { kMustBeThere, kIsMade };
  explicit FileLock(const std::string& path, Folder folder = Folder::kMustBeThere);
  // Removes that file.
  ~FileLock();
  FileLock(const FileLock&) = delete;
  FileLock& operator=(const FileLock&) = delete;

 private:
  const std::string lock_path_;
  const int descriptor_;
};

}  // namespace lockstep

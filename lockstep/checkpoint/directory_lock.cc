#include "lockstep/checkpoint/directory_lock.h"

#include <fcntl.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include <array>
#include <cerrno>

#include "lockstep/base/error.h"
#include "lockstep/base/str.h"
#include "lockstep/checkpoint/file_layer.h"
#include "lockstep/cluster/host_address.h"

namespace lockstep {
namespace {

std::string content_of(int descriptor) {
  std::array<char, 300> text{};
  const auto bytes = pread(descriptor, text.data(), text.size(), 0);
  return bytes <= 0 ? "another process" : std::string(text.data(), static_cast<std::size_t>(bytes));
}

// What is locked, for messages: "checkpoints in 'backup' are written", and what to do about it.
struct Use {
  std::string what;
  const char* advice;
};

// A descriptor of the file at `path`, locked.
int open_locked(const Use& use, const std::string& path) {
  constexpr int kEverybody = 0666;
  const int descriptor = open(path.c_str(), O_RDWR | O_CREAT | O_CLOEXEC, kEverybody);
  if (descriptor < 0) throw_file_error("cannot be made", path, errno);
  if (flock(descriptor, LOCK_EX | LOCK_NB) == 0) return descriptor;
  const int error = errno;
  const auto holder = content_of(descriptor);
  close(descriptor);
  if (error != EWOULDBLOCK) throw_file_error("cannot be locked", path, error);
  throw Error(ErrorCode::kFailedPrecondition, str(use.what, " by ", holder, "; ", use.advice));
}

bool is_at(int descriptor, const std::string& path) {
  struct stat mine = {};
  struct stat there = {};
  return fstat(descriptor, &mine) == 0 && stat(path.c_str(), &there) == 0 && mine.st_dev == there.st_dev &&
         mine.st_ino == there.st_ino;
}

int take(const Use& use, const std::string& path) {
  constexpr int kMostTries = 100;
  int descriptor = open_locked(use, path);
  // Whoever had it may have removed the file between our opening and our locking it: a lock that nobody else will look at.
  for (int tries = 1; !is_at(descriptor, path); ++tries) {
    close(descriptor);
    if (tries == kMostTries)
      throw Error(ErrorCode::kFailedPrecondition,
                  str("'", path, "' was removed ", kMostTries, " times while it was being locked; ", use.advice));
    descriptor = open_locked(use, path);
  }
  // Only for the message above: a failure costs nothing else.
  const auto text = str("process ", getpid(), " on ", own_host_name());
  if (ftruncate(descriptor, 0) == 0) static_cast<void>(!pwrite(descriptor, text.data(), text.size(), 0));
  return descriptor;
}

// A folder that is not there stands in the way as one does that may not be written to.
int take_for_file(const std::string& path, const std::string& lock_path, FileLock::Folder folder) {
  if (is_folder(path))
    throw Error(ErrorCode::kFailedPrecondition, str("'", path, "' is a folder, and a file is to be written there"));
  try {
    if (folder == FileLock::Folder::kIsMade) real_files().make_folder(folder_of(path));
    return take({str("'", path, "' is written"),
                 "two trainings would replace each other's: give each a file of its own, or end the other"},
                lock_path);
  } catch (const Error& error) {
    if (error.code() != ErrorCode::kNotFound) throw;
    throw Error(ErrorCode::kFailedPrecondition,
                str("'", path, "' cannot be written, its folder cannot be found: ", error.message()));
  }
}

}  // namespace

DirectoryLock::DirectoryLock(const std::string& directory)
    : descriptor_(take({str("checkpoints in '", directory, "' are written"),
                        "two jobs would remove each other's: give each a directory of its own, or end the other"},
                       str(directory, "/", kFileName))) {}

DirectoryLock::~DirectoryLock() { close(descriptor_); }

FileLock::FileLock(const std::string& path, Folder folder)
    : lock_path_(str(folder_of(path), "/.", path.substr(path.rfind('/') + 1), ".lock")),
      descriptor_(take_for_file(path, lock_path_, folder)) {}

FileLock::~FileLock() {
  unlink(lock_path_.c_str());  // before it is let go of: whoever has opened it meanwhile finds that it is gone
  close(descriptor_);
}

}  // namespace lockstep

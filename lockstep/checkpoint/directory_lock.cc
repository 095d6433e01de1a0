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

// A descriptor of the file at `path`, locked.
int open_locked(const std::string& directory, const std::string& path) {
  constexpr int kEverybody = 0666;
  const int descriptor = open(path.c_str(), O_RDWR | O_CREAT | O_CLOEXEC, kEverybody);
  if (descriptor < 0) throw_file_error("cannot be made", path, errno);
  if (flock(descriptor, LOCK_EX | LOCK_NB) == 0) return descriptor;
  const int error = errno;
  const auto holder = content_of(descriptor);
  close(descriptor);
  if (error != EWOULDBLOCK) throw_file_error("cannot be locked", path, error);
  throw Error(ErrorCode::kFailedPrecondition,
              str("checkpoints in '", directory, "' are written by ", holder,
                  "; two jobs would remove each other's: give each a directory of its own, or end the other"));
}

bool is_at(int descriptor, const std::string& path) {
  struct stat mine = {};
  struct stat there = {};
  return fstat(descriptor, &mine) == 0 && stat(path.c_str(), &there) == 0 && mine.st_dev == there.st_dev &&
         mine.st_ino == there.st_ino;
}

}  // namespace

DirectoryLock::DirectoryLock(const std::string& directory) {
  const auto path = str(directory, "/", kFileName);
  constexpr int kMostTries = 100;
  descriptor_ = open_locked(directory, path);
  // Whoever had it may have removed the file between our opening and our locking it: a lock that nobody else will look at.
  for (int tries = 1; !is_at(descriptor_, path); ++tries) {
    close(descriptor_);
    if (tries == kMostTries)
      throw Error(ErrorCode::kFailedPrecondition, str("'", path, "' was removed ", kMostTries,
                                                      " times while it was being locked; other jobs use the directory: give "
                                                      "each one of its own"));
    descriptor_ = open_locked(directory, path);
  }
  // Only for the message above: a failure costs nothing else.
  const auto text = str("process ", getpid(), " on ", own_host_name());
  if (ftruncate(descriptor_, 0) == 0) static_cast<void>(!pwrite(descriptor_, text.data(), text.size(), 0));
}

DirectoryLock::~DirectoryLock() { close(descriptor_); }

}  // namespace lockstep

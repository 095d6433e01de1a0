#include "lockstep/checkpoint/directory_lock.h"

#include <fcntl.h>
#include <sys/file.h>
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

}  // namespace

DirectoryLock::DirectoryLock(const std::string& directory) {
  const auto path = str(directory, "/", kFileName);
  constexpr int kEverybody = 0666;
  descriptor_ = open(path.c_str(), O_RDWR | O_CREAT | O_CLOEXEC, kEverybody);
  if (descriptor_ < 0) throw_file_error("cannot be made", path, errno);
  if (flock(descriptor_, LOCK_EX | LOCK_NB) != 0) {
    const int error = errno;
    const auto holder = content_of(descriptor_);
    close(descriptor_);
    if (error != EWOULDBLOCK) throw_file_error("cannot be locked", path, error);
    throw Error(ErrorCode::kFailedPrecondition,
                str("checkpoints in '", directory, "' are written by ", holder,
                    "; two jobs would remove each other's: give each a directory of its own, or end the other"));
  }
  // Only for the message above: a failure costs nothing else.
  const auto text = str("process ", getpid(), " on ", own_host_name());
  if (ftruncate(descriptor_, 0) == 0) static_cast<void>(!pwrite(descriptor_, text.data(), text.size(), 0));
}

DirectoryLock::~DirectoryLock() { close(descriptor_); }

}  // namespace lockstep

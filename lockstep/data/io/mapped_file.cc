#include "lockstep/data/io/mapped_file.h"

#include <fcntl.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>

#include "lockstep/base/errno_text.h"
#include "lockstep/base/error.h"
#include "lockstep/base/on_exit.h"
#include "lockstep/base/str.h"

namespace lockstep::data {

MappedFile::MappedFile(const std::string& path) {
  const auto fail = [&](ErrorCode code, const std::string& why) { throw Error(code, str("the file '", path, "' ", why)); };
  // A pipe would otherwise block until somebody writes to it.
  const int descriptor = open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK);
  if (descriptor < 0)
    fail(errno == ENOENT || errno == ENOTDIR ? ErrorCode::kNotFound : ErrorCode::kFailedPrecondition,
         str("cannot be opened: ", errno_text(errno)));
  const OnExit close_it([&] { close(descriptor); });
  struct stat facts = {};
  if (fstat(descriptor, &facts) != 0) fail(ErrorCode::kFailedPrecondition, str("has no size: ", errno_text(errno)));
  if (!S_ISREG(facts.st_mode)) fail(ErrorCode::kFailedPrecondition, "is not a plain file (a folder, a pipe or a device)");
  size_ = static_cast<std::size_t>(facts.st_size);
  if (size_ == 0) return;
  // Without a reserve: a file may be larger than the memory.
  auto* const memory = mmap(nullptr, size_, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_NORESERVE, descriptor, 0);
  if (memory == MAP_FAILED) fail(ErrorCode::kFailedPrecondition, str("cannot be mapped to memory: ", errno_text(errno)));
  data_ = static_cast<char*>(memory);
}

MappedFile::~MappedFile() {
  if (data_ != nullptr) munmap(data_, size_);
}

}  // namespace lockstep::data

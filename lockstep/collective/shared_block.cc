#include "lockstep/collective/shared_block.h"

#include <fcntl.h>
#include <signal.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <fstream>
#include <sstream>

#include "lockstep/base/errno_text.h"
#include "lockstep/base/error.h"
#include "lockstep/base/str.h"

namespace lockstep {
namespace {

std::string link_text(const char* path) {
  std::array<char, 256> text{};
  const auto length = readlink(path, text.data(), text.size());
  return length > 0 ? std::string(text.data(), static_cast<std::size_t>(length)) : std::string("?");
}

}  // namespace

SharedBlock::SharedBlock(std::size_t bytes) : bytes_(bytes) {
  descriptor_ = memfd_create("lockstep", MFD_CLOEXEC);
  if (descriptor_ < 0 || ftruncate(descriptor_, static_cast<off_t>(bytes)) != 0) {
    const auto why = errno_text(errno);
    close_ticket();
    throw Error(ErrorCode::kUnavailable,
                str("shared memory of ", bytes, " bytes cannot be made (", why, "); choose the engine gloo, or free memory"));
  }
  map();
}

SharedBlock SharedBlock::open(const std::string& ticket) {
  std::istringstream in(ticket);
  long pid = 0;
  int descriptor = -1;
  std::size_t bytes = 0;
  if (!(in >> pid >> descriptor >> bytes) || pid <= 0 || descriptor < 0)
    throw Error(ErrorCode::kInvalidArgument, str("'", ticket, "' does not name shared memory"));
  SharedBlock block;
  block.bytes_ = bytes;
  const auto path = str("/proc/", pid, "/fd/", descriptor);
  block.descriptor_ = ::open(path.c_str(), O_RDWR | O_CLOEXEC);
  struct stat status {};
  if (block.descriptor_ < 0 && kill(static_cast<pid_t>(pid), 0) != 0 && errno == ESRCH)
    throw Error(ErrorCode::kUnavailable,
                str("process ", pid, ", a worker of this machine, ended before its memory was opened"));
  if (block.descriptor_ < 0 || fstat(block.descriptor_, &status) != 0 || status.st_size != static_cast<off_t>(bytes))
    throw Error(ErrorCode::kUnavailable,
                str("the shared memory of process ", pid, " cannot be opened (", path, ": ", errno_text(errno),
                    "); run all workers of a machine as one user, or choose the "
                    "engine gloo"));
  block.map();
  block.close_ticket();
  return block;
}

void SharedBlock::map() {
  if (bytes_ == 0) return;
  void* address = mmap(nullptr, bytes_, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_NORESERVE, descriptor_, 0);
  if (address == MAP_FAILED) {
    const auto why = errno_text(errno);
    close_ticket();
    throw Error(ErrorCode::kUnavailable, str("shared memory of ", bytes_, " bytes cannot be mapped (", why, ")"));
  }
  data_ = static_cast<std::byte*>(address);
}

SharedBlock::~SharedBlock() {
  if (data_ != nullptr) munmap(data_, bytes_);
  close_ticket();
}

SharedBlock& SharedBlock::operator=(SharedBlock&& other) noexcept {
  SharedBlock moved(std::move(other));
  std::swap(data_, moved.data_);
  std::swap(bytes_, moved.bytes_);
  std::swap(descriptor_, moved.descriptor_);
  return *this;
}

std::string SharedBlock::ticket() const { return str(getpid(), " ", descriptor_, " ", bytes_); }

void SharedBlock::close_ticket() noexcept {
  if (descriptor_ >= 0) ::close(descriptor_);
  descriptor_ = -1;
}

std::string machine_key() {
  std::ifstream file("/proc/sys/kernel/random/boot_id");
  std::string boot;
  std::getline(file, boot);
  return str(boot, " ", link_text("/proc/self/ns/net"), " ", link_text("/proc/self/ns/pid"), " ", geteuid());
}

}  // namespace lockstep

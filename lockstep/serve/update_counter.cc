#include "lockstep/serve/update_counter.h"

#include <fcntl.h>
#include <sys/file.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <fstream>

#include "lockstep/base/error.h"
#include "lockstep/base/str.h"
#include "lockstep/checkpoint/file_layer.h"

namespace lockstep::internal {
namespace {

constexpr char kMagic[8] = {'l', 's', 'c', 'o', 'u', 'n', 't', '1'};
constexpr std::size_t kBootBytes = 40;
constexpr std::size_t kBytes = 4096;

// Another one each time the machine is started.
std::string boot_name() {
  std::ifstream file("/proc/sys/kernel/random/boot_id");
  std::string name;
  std::getline(file, name);
  name.resize(kBootBytes);
  return name;
}

}  // namespace

struct UpdateCounter::Page {
  char magic[sizeof kMagic];  // NOLINT: as the file has it
  char boot[kBootBytes];      // NOLINT
  std::atomic<std::uint64_t> count;
};

UpdateCounter::UpdateCounter(const std::string& path) {
  static_assert(std::atomic<std::uint64_t>::is_always_lock_free);
  descriptor_ = open(path.c_str(), O_RDWR | O_CREAT | O_CLOEXEC, 0666);
  if (descriptor_ < 0) throw_file_error("opening", path, errno);
  const auto give_up = [&](const char* what) {
    const int error = errno;
    close(descriptor_);
    throw_file_error(what, path, error);
  };
  if (flock(descriptor_, LOCK_EX | LOCK_NB) != 0) {
    if (errno != EWOULDBLOCK) give_up("locking");
    close(descriptor_);
    throw Error(
        ErrorCode::kFailedPrecondition,
        str("'", path, "' is in use: another parameter server keeps its snapshots there; end it, or give another folder"));
  }
  struct stat facts = {};
  if (fstat(descriptor_, &facts) != 0 || ftruncate(descriptor_, kBytes) != 0) give_up("sizing");
  void* const memory = mmap(nullptr, kBytes, PROT_READ | PROT_WRITE, MAP_SHARED, descriptor_, 0);
  if (memory == MAP_FAILED) give_up("mapping");
  page_ = static_cast<Page*>(memory);
  const auto boot = boot_name();
  const bool is_ours = facts.st_size > 0 && std::memcmp(page_->magic, kMagic, sizeof kMagic) == 0;
  if (is_ours) previous_ = {page_->count, std::memcmp(page_->boot, boot.data(), kBootBytes) == 0};
  else if (facts.st_size > 0) previous_ = {0, false};
  std::memcpy(page_->boot, boot.data(), kBootBytes);
  if (!is_ours) page_->count = 0;
  std::memcpy(page_->magic, kMagic, sizeof kMagic);
}

UpdateCounter::~UpdateCounter() {
  munmap(page_, kBytes);
  close(descriptor_);
}

std::atomic<std::uint64_t>& UpdateCounter::count() noexcept { return page_->count; }

}  // namespace lockstep::internal

#include "lockstep/ps/memory.h"

#include <ATen/ATen.h>
#include <sys/mman.h>

#include <algorithm>
#include <cstdlib>
#include <fstream>
#include <limits>
#include <optional>

#include "lockstep/base/error.h"
#include "lockstep/base/str.h"

namespace lockstep::ps {
namespace {

constexpr std::size_t kSmall = std::size_t{1} << 20;  // not worth to ask the system for

[[noreturn]] void refuse(std::size_t bytes, std::size_t free, const std::string& what) {
  throw Error(ErrorCode::kUnavailable, str("out of memory: ", bytes, " bytes for ", what, ", and ", free,
                                           " are free; use more servers, or smaller parts"));
}

std::optional<std::size_t> number_in(const char* file) {
  std::ifstream stream(file);
  std::size_t number = 0;
  if (!(stream >> number)) return std::nullopt;
  return number;
}

std::size_t free_on_machine() {
  std::size_t free = std::numeric_limits<std::size_t>::max();
  std::ifstream stream("/proc/meminfo");
  std::string name;
  std::size_t kilobytes = 0;
  std::string unit;
  while (stream >> name >> kilobytes && std::getline(stream, unit))
    if (name == "MemAvailable:") free = kilobytes * 1024;
  const auto most = number_in("/sys/fs/cgroup/memory.max");  // "max" is no number
  const auto used = number_in("/sys/fs/cgroup/memory.current");
  if (most && used) free = std::min(free, *most - std::min(*most, *used));
  return free;
}

}  // namespace

void Memory::require(std::size_t bytes, const std::string& what) const {
  const auto used = used_.load();
  if (most_bytes_ != 0 && (used > most_bytes_ || bytes > most_bytes_ - used))
    refuse(bytes, most_bytes_ - std::min(used, most_bytes_), what);
  if (bytes < kSmall) return;
  require_on_machine(bytes, what);
  void* const tried = std::malloc(bytes);  // NOLINT: a limit of the process shows only so
  if (tried == nullptr) refuse(bytes, 0, what);
  std::free(tried);  // NOLINT
}

// The system's files take longer to read than a small update takes. As long as what is asked for is little beside what was
// free a moment ago, they are not read again.
void Memory::require_on_machine(std::size_t bytes, const std::string& what) const {
  constexpr std::chrono::milliseconds kMoment{50};
  constexpr std::size_t kLittle = 16;  // this part of it
  const auto used = used_.load();
  const auto now = std::chrono::steady_clock::now();
  {
    const std::lock_guard lock(mu_);
    const auto taken = used - std::min(used, used_then_);
    if (now - looked_ < kMoment && bytes <= (free_then_ - std::min(free_then_, taken)) / kLittle) return;
  }
  const auto free = free_on_machine();
  if (bytes > free) refuse(bytes, free, what);
  const std::lock_guard lock(mu_);
  looked_ = now;
  free_then_ = free;
  used_then_ = used;
}

Memory::Reservation Memory::reserve(std::size_t bytes, const std::string& what) {
  require(bytes, what);
  used_ += bytes;
  return {*this, bytes};
}

at::Tensor allocate(const std::vector<std::int64_t>& shape, std::int8_t dtype, const std::string& what) {
  constexpr std::size_t kHugePage = std::size_t{2} << 20;
  try {
    auto tensor = at::empty(shape, at::TensorOptions(static_cast<at::ScalarType>(dtype)));
    // Rows from all over a large table: with huge pages their addresses are found without a walk through memory.
    if (tensor.nbytes() >= 16 * kHugePage) {
      const auto begin = reinterpret_cast<std::uintptr_t>(tensor.data_ptr());
      const auto first = (begin + kHugePage - 1) / kHugePage * kHugePage;
      madvise(reinterpret_cast<void*>(first), begin + tensor.nbytes() - first, MADV_HUGEPAGE);  // NOLINT: only a wish
    }
    return tensor;
  } catch (const c10::Error&) {
    throw Error(ErrorCode::kUnavailable, str("out of memory: the system has none for ", what));
  }
}

}  // namespace lockstep::ps

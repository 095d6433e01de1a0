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

std::optional<std::size_t> number_in(const char* file) {
  std::ifstream stream(file);
  std::size_t number = 0;
  if (!(stream >> number)) return std::nullopt;
  return number;
}

// Of files: the system gives it back when memory is asked for.
std::size_t cached_in_group() {
  std::ifstream stream("/sys/fs/cgroup/memory.stat");
  std::size_t sum = 0, bytes = 0;
  for (std::string name; stream >> name >> bytes;)
    if (name == "inactive_file" || name == "active_file") sum += bytes;
  return sum;
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
  if (most && used) {
    const auto kept = *used - std::min(*used, cached_in_group());
    free = std::min(free, *most - std::min(*most, kept));
  }
  return free;
}

}  // namespace

Error no_memory(MemoryUse use, const std::string& text) {
  return Error(use == MemoryUse::kLasts ? ErrorCode::kFailedPrecondition : ErrorCode::kUnavailable, "out of memory: " + text);
}

std::optional<std::size_t> Memory::too_little_for(std::size_t bytes) {
  const auto used = used_.load();
  if (most_bytes_ != 0 && (used > most_bytes_ || bytes > most_bytes_ - used)) return most_bytes_ - std::min(used, most_bytes_);
  if (bytes < kSmall) return std::nullopt;
  if (const auto free = too_little_on_machine_for(bytes)) return free;
  void* const tried = std::malloc(bytes);  // NOLINT: a limit of the process shows only so
  if (tried == nullptr) return 0;
  std::free(tried);  // NOLINT
  return std::nullopt;
}

void Memory::require(std::size_t bytes, const std::string& what, MemoryUse use) {
  if (!too_little_for(bytes)) return;
  {
    const std::lock_guard lock(reserves_mu_);
    for (auto* const reserve : reserves_) reserve->give_back();
  }
  if (const auto free = too_little_for(bytes))
    throw no_memory(use, str(bytes, " bytes for ", what, ", and ", *free, " are free; use more servers, or smaller parts"));
}

void Memory::add(Reserve& reserve) {
  const std::lock_guard lock(reserves_mu_);
  reserves_.push_back(&reserve);
}

void Memory::remove(Reserve& reserve) {
  const std::lock_guard lock(reserves_mu_);
  std::erase(reserves_, &reserve);
}

// The system's files take longer to read than a small update takes. As long as what is asked for is little beside what was
// free a moment ago, they are not read again.
std::optional<std::size_t> Memory::too_little_on_machine_for(std::size_t bytes) {
  constexpr std::chrono::milliseconds kMoment{50};
  constexpr std::size_t kLittle = 16;  // this part of it
  const auto used = used_.load();
  const auto now = std::chrono::steady_clock::now();
  {
    const std::lock_guard lock(mu_);
    const auto taken = used - std::min(used, used_then_);
    if (now - looked_ < kMoment && bytes <= (free_then_ - std::min(free_then_, taken)) / kLittle) return std::nullopt;
  }
  const auto free = free_on_machine();
  if (bytes > free) return free;
  const std::lock_guard lock(mu_);
  looked_ = now;
  free_then_ = free;
  used_then_ = used;
  return std::nullopt;
}

Memory::Reservation Memory::reserve(std::size_t bytes, const std::string& what, MemoryUse use) {
  require(bytes, what, use);
  used_ += bytes;
  return {*this, bytes};
}

at::Tensor allocate(const std::vector<std::int64_t>& shape, std::int8_t dtype, const std::string& what, MemoryUse use) {
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
    throw no_memory(use, str("the system has none for ", what));
  }
}

}  // namespace lockstep::ps

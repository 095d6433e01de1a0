#include "lockstep/device/block_cache.h"

#include <array>
#include <atomic>
#include <bit>
#include <cstdint>
#include <cstdlib>
#include <mutex>

namespace lockstep {
namespace {

constexpr std::size_t kAlignment = 64;
constexpr std::size_t kSmallest = 256;
constexpr std::size_t kLargest = 1 << 20;
constexpr std::size_t kSteps = 4;  // classes between two powers of two
constexpr std::size_t kClasses = kSteps * 12 + 1;
constexpr std::size_t kNoClass = kClasses;
#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
constexpr std::size_t kMostKept = 0;
#else
constexpr std::size_t kMostKept = 32 << 20;
#endif

constexpr std::size_t kSmallestShared = 16 << 10;
struct Kept;

// Stands just before the data.
struct Header {
  void* block;  // what malloc gave
  std::size_t size_class;
  const Kept* owner;  // of the thread that asked for it last; never looked into
};

Header& header_of(void* data) { return static_cast<Header*>(data)[-1]; }

// 256, then 320, 384, 448, 512, 640, ... up to 1 MB.
std::size_t class_of(std::size_t bytes) {
  if (bytes <= kSmallest) return 0;
  if (bytes > kLargest) return kNoClass;
  const auto power = static_cast<std::size_t>(std::bit_width(bytes - 1)) - 1;  // 2^power < bytes <= 2^(power + 1)
  const auto step = ((bytes - 1) >> (power - 2)) & (kSteps - 1);
  return (power - 8) * kSteps + step + 1;
}

std::size_t size_of(std::size_t size_class) {
  if (size_class == 0) return kSmallest;
  const auto power = (size_class - 1) / kSteps + 8;
  const auto step = (size_class - 1) % kSteps;
  return (std::size_t{1} << power) + (step + 1) * (std::size_t{1} << (power - 2));
}

// Lists through the first word of each block's data.
struct Lists {
  std::array<void*, kClasses> first;

  void* take(std::size_t size_class) {
    void* data = first[size_class];
    if (data != nullptr) first[size_class] = *static_cast<void**>(data);
    return data;
  }
  void put(void* data, std::size_t size_class) {
    *static_cast<void**>(data) = first[size_class];
    first[size_class] = data;
  }
};

// Trivial, so that it can be used until the thread's very end.
struct Kept {
  Lists lists;
  std::size_t bytes;
  bool is_closed;
};
constinit thread_local Kept t_kept = {};

void* take(std::size_t size_class) {
  void* data = t_kept.lists.take(size_class);
  if (data != nullptr) t_kept.bytes -= size_of(size_class);
  return data;
}

// What was freed on other threads than it was asked for on. Never ends: neither do tensors.
class Store {
 public:
  constexpr Store() = default;

  void* take(std::size_t size_class) noexcept {
    if (bytes_.load(std::memory_order_relaxed) == 0) return nullptr;
    const std::lock_guard lock(mu_);
    void* data = lists_.take(size_class);
    if (data != nullptr) bytes_.fetch_sub(size_of(size_class), std::memory_order_relaxed);
    return data;
  }
  bool put(void* data, std::size_t size_class) noexcept {
    const std::lock_guard lock(mu_);
    if (bytes() + size_of(size_class) > kMostKept) return false;
    lists_.put(data, size_class);
    bytes_.fetch_add(size_of(size_class), std::memory_order_relaxed);
    return true;
  }
  std::size_t bytes() const noexcept { return bytes_.load(std::memory_order_relaxed); }

 private:
  std::mutex mu_;
  Lists lists_ = {};                   // guarded by mu_
  std::atomic<std::size_t> bytes_{0};  // changed under mu_
};
constinit Store g_store;

bool is_shared(std::size_t size_class) { return size_class != kNoClass && size_of(size_class) >= kSmallestShared; }

// Gives everything back when the thread ends.
struct Closer {
  ~Closer() {
    t_kept.is_closed = true;
    for (std::size_t k = 0; k < kClasses; ++k)
      while (void* data = take(k)) std::free(header_of(data).block);
  }
  void touch() {}
};
thread_local Closer t_closer;

bool keep(void* data, std::size_t size_class, const Kept* owner) {
  if (is_shared(size_class) && owner != &t_kept) return g_store.put(data, size_class);
  if (size_class == kNoClass || t_kept.is_closed || t_kept.bytes + size_of(size_class) > kMostKept) return false;
  t_closer.touch();  // made at first use
  t_kept.lists.put(data, size_class);
  t_kept.bytes += size_of(size_class);
  return true;
}

}  // namespace

void* allocate_block(std::size_t bytes) noexcept {
  constexpr std::size_t kExtra = kAlignment + sizeof(Header);
  const auto size_class = class_of(bytes);
  if (size_class != kNoClass) {
    if (void* data = take(size_class)) return data;
    if (void* data = is_shared(size_class) ? g_store.take(size_class) : nullptr) {
      header_of(data).owner = &t_kept;
      return data;
    }
    bytes = size_of(size_class);
  }
  if (bytes >= PTRDIFF_MAX - kExtra) return nullptr;
  void* block = std::malloc(bytes + kExtra);
  if (block == nullptr) return nullptr;
  const auto first = reinterpret_cast<std::uintptr_t>(block) + sizeof(Header);
  void* data = reinterpret_cast<void*>((first + kAlignment - 1) / kAlignment * kAlignment);
  header_of(data) = {block, size_class, &t_kept};
  return data;
}

void free_block(void* data) noexcept {
  if (data == nullptr) return;
  const Header header = header_of(data);
  if (!keep(data, header.size_class, header.owner)) std::free(header.block);
}

std::size_t kept_block_bytes() noexcept { return t_kept.bytes; }

std::size_t shared_block_bytes() noexcept { return g_store.bytes(); }

}  // namespace lockstep

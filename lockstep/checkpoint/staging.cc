#include "lockstep/checkpoint/staging.h"

#include <sys/mman.h>

#include <algorithm>
#include <atomic>
#include <cerrno>
#include <cstring>
#include <thread>

#include "lockstep/base/errno_text.h"
#include "lockstep/base/error.h"
#include "lockstep/base/str.h"
#include "lockstep/base/thread.h"

namespace lockstep {
namespace {

constexpr std::size_t kAlignment = 64;
constexpr std::size_t kChunk = std::size_t{4} << 20;

struct Copy {
  std::byte* to = nullptr;
  std::span<const std::byte> from;
};

void copy_all(const std::vector<Copy>& copies, int threads) {
  std::atomic<std::size_t> next = 0;
  const auto work = [&](const std::stop_token&) {
    for (std::size_t i = next++; i < copies.size(); i = next++)
      std::memcpy(copies[i].to, copies[i].from.data(), copies[i].from.size());
  };
  std::vector<std::jthread> others;
  for (int thread = 1; thread < threads; ++thread) others.push_back(start_thread("lockstep:copy", work));
  work({});
}

}  // namespace

StagingMemory::~StagingMemory() {
  if (memory_ != nullptr) munmap(memory_, bytes_);
}

void StagingMemory::reserve(std::size_t bytes) {
  if (bytes <= bytes_) return;
  if (memory_ != nullptr) munmap(memory_, bytes_);
  memory_ = nullptr;
  bytes_ = 0;
  auto* const memory = mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  if (memory == MAP_FAILED)
    throw Error(ErrorCode::kUnavailable,
                str("no memory for a copy of ", bytes, " bytes, which a save in the background needs: ", errno_text(errno),
                    "; save without it (async = false)"));
  madvise(memory, bytes, MADV_HUGEPAGE);  // 500 times fewer page faults, where the system has them
  memory_ = static_cast<std::byte*>(memory);
  bytes_ = bytes;
}

void StagingMemory::copy(std::span<std::span<const std::byte>* const> pieces) {
  const auto rounded = [](std::size_t bytes) { return (bytes + kAlignment - 1) / kAlignment * kAlignment; };
  std::size_t total = 0;
  for (const auto* piece : pieces) total += rounded(piece->size());
  reserve(total);
  std::vector<Copy> copies;
  auto* to = memory_;
  for (auto* piece : pieces) {
    for (std::size_t at = 0; at < piece->size(); at += kChunk)
      copies.push_back({to + at, piece->subspan(at, std::min(kChunk, piece->size() - at))});
    *piece = {to, piece->size()};
    to += rounded(piece->size());
  }
  copy_all(copies, total > 2 * kChunk ? std::min(2, available_cores()) : 1);
}

}  // namespace lockstep

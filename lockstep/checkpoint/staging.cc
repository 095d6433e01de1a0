#include "lockstep/checkpoint/staging.h"

#include <sys/mman.h>

#include <cerrno>

#include "lockstep/base/errno_text.h"
#include "lockstep/base/error.h"
#include "lockstep/base/str.h"
#include "lockstep/checkpoint/copy_bytes.h"

namespace lockstep {
namespace {

constexpr std::size_t kAlignment = 64;

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
  std::vector<ByteCopy> copies;
  auto* to = memory_;
  for (auto* piece : pieces) {
    copies.push_back({to, *piece});
    *piece = {to, piece->size()};
    to += rounded(piece->size());
  }
  copy_bytes(copies);
}

void StagingMemory::prepare(std::size_t bytes) {
  reserve(bytes + bytes / 64);  // and what rounding adds
  constexpr std::size_t kPage = 4096;
  for (std::size_t at = 0; at < bytes_; at += kPage) memory_[at] = std::byte{0};
}

}  // namespace lockstep

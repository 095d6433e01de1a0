#include "lockstep/checkpoint/copy_bytes.h"

#ifdef __SSE2__
#include <emmintrin.h>
#endif

#include <algorithm>
#include <atomic>
#include <cstdint>
#include <cstring>
#include <thread>

#include "lockstep/base/thread.h"

namespace lockstep {
namespace {

// Large enough that two threads are seldom at the same place, small enough that both end together.
constexpr std::size_t kChunk = std::size_t{4} << 20;

#ifdef __SSE2__
constexpr std::size_t kLine = 64;

// Stores past the caches: what is written is not read soon, and a line need not be fetched to be overwritten. 400 MB by two
// threads take 22 ms where memcpy takes 34.
void copy_past_caches(std::byte* to, std::span<const std::byte> from) {
  constexpr std::size_t kAhead = 1024;
  const auto* at = from.data();
  const auto* const end = at + from.size();
  const auto before = std::min(from.size(), (kLine - reinterpret_cast<std::uintptr_t>(to) % kLine) % kLine);
  std::memcpy(to, at, before);
  to += before;
  at += before;
  for (; end - at >= static_cast<std::ptrdiff_t>(kLine); at += kLine, to += kLine) {
    const auto* const source = reinterpret_cast<const __m128i*>(at);
    auto* const target = reinterpret_cast<__m128i*>(to);
    const auto first = _mm_loadu_si128(source);
    const auto second = _mm_loadu_si128(source + 1);
    const auto third = _mm_loadu_si128(source + 2);
    const auto fourth = _mm_loadu_si128(source + 3);
    _mm_prefetch(reinterpret_cast<const char*>(at + kAhead), _MM_HINT_NTA);  // past the end it does nothing
    _mm_stream_si128(target, first);
    _mm_stream_si128(target + 1, second);
    _mm_stream_si128(target + 2, third);
    _mm_stream_si128(target + 3, fourth);
  }
  std::memcpy(to, at, static_cast<std::size_t>(end - at));
  _mm_sfence();  // other threads see it before they see that this one has ended
}
#else
void copy_past_caches(std::byte* to, std::span<const std::byte> from) { std::memcpy(to, from.data(), from.size()); }
#endif

}  // namespace

void copy_bytes(std::span<const ByteCopy> copies) {
  std::vector<ByteCopy> chunks;
  std::size_t total = 0;
  for (const auto& [to, from] : copies) {
    total += from.size();
    for (std::size_t at = 0; at < from.size(); at += kChunk)
      chunks.push_back({to + at, from.subspan(at, std::min(kChunk, from.size() - at))});
  }
  std::atomic<std::size_t> next = 0;
  const auto work = [&](const std::stop_token&) {
    for (std::size_t i = next++; i < chunks.size(); i = next++) copy_past_caches(chunks[i].to, chunks[i].from);
  };
  std::jthread other;
  if (total > 2 * kChunk && available_cores() > 1) other = start_thread("lockstep:copy", work);
  work({});
}

}  // namespace lockstep

#include "lockstep/data/io/crc32c.h"

#include <array>
#include <cstring>

#if defined(__x86_64__)
#include <nmmintrin.h>
#elif defined(__aarch64__) && defined(__ARM_FEATURE_CRC32)
#include <arm_acle.h>
#endif

namespace lockstep::data {
namespace {

using Table = std::array<std::uint32_t, 256>;

constexpr std::uint32_t kPolynomial = 0x82f63b78U;  // reflected

constexpr std::uint32_t add_zero_bits(std::uint32_t crc, int bits) {
  for (int bit = 0; bit < bits; ++bit) crc = (crc >> 1) ^ ((crc & 1) != 0 ? kPolynomial : 0);
  return crc;
}

// tables[k][b]: what byte b does to the checksum when k more bytes follow.
constexpr std::array<Table, 8> make_byte_tables() {
  std::array<Table, 8> tables{};
  for (std::uint32_t byte = 0; byte < 256; ++byte) tables[0][byte] = add_zero_bits(byte, 8);
  for (std::size_t k = 1; k < 8; ++k)
    for (std::size_t byte = 0; byte < 256; ++byte)
      tables[k][byte] = (tables[k - 1][byte] >> 8) ^ tables[0][tables[k - 1][byte] & 0xff];
  return tables;
}
constexpr auto kBytes = make_byte_tables();

std::uint32_t by_table(std::uint32_t crc, const unsigned char* at, std::size_t bytes) {
  for (; bytes >= 8; bytes -= 8, at += 8) {
    const std::uint32_t low = crc ^ (at[0] | (at[1] << 8) | (at[2] << 16) | (std::uint32_t{at[3]} << 24));
    crc = kBytes[7][low & 0xff] ^ kBytes[6][(low >> 8) & 0xff] ^ kBytes[5][(low >> 16) & 0xff] ^ kBytes[4][low >> 24] ^
          kBytes[3][at[4]] ^ kBytes[2][at[5]] ^ kBytes[1][at[6]] ^ kBytes[0][at[7]];
  }
  for (; bytes > 0; --bytes, ++at) crc = kBytes[0][(crc ^ *at) & 0xff] ^ (crc >> 8);
  return crc;
}

#if defined(__x86_64__)

// Note [three at once]
// The instruction takes three cycles and can begin every cycle: three parts of a block are summed side by side. A part's sum
// is then moved over the bytes that follow it, which is linear: one table for each of the sum's four bytes.
constexpr std::size_t kPart = 256;

constexpr std::array<Table, 4> make_move_tables() {
  std::array<std::uint32_t, 32> moved{};  // each bit of a sum, over kPart zero bytes
  for (std::size_t bit = 0; bit < 32; ++bit) moved[bit] = add_zero_bits(std::uint32_t{1} << bit, 8 * kPart);
  std::array<Table, 4> tables{};
  for (std::size_t k = 0; k < 4; ++k)
    for (std::size_t byte = 0; byte < 256; ++byte)
      for (std::size_t bit = 0; bit < 8; ++bit)
        if ((byte >> bit & 1) != 0) tables[k][byte] ^= moved[8 * k + bit];
  return tables;
}
constexpr auto kMove = make_move_tables();

std::uint32_t moved(std::uint64_t crc) {
  return kMove[0][crc & 0xff] ^ kMove[1][(crc >> 8) & 0xff] ^ kMove[2][(crc >> 16) & 0xff] ^ kMove[3][(crc >> 24) & 0xff];
}

std::uint64_t word(const unsigned char* at) {
  std::uint64_t value = 0;
  std::memcpy(&value, at, sizeof value);
  return value;
}

__attribute__((target("sse4.2"))) std::uint32_t by_instruction(std::uint32_t start, const unsigned char* at,
                                                               std::size_t bytes) {
  std::uint64_t crc = start;
  for (; bytes >= 3 * kPart; bytes -= 3 * kPart, at += 3 * kPart) {
    std::uint64_t second = 0;
    std::uint64_t third = 0;
    for (std::size_t i = 0; i < kPart; i += 8) {
      crc = _mm_crc32_u64(crc, word(at + i));
      second = _mm_crc32_u64(second, word(at + kPart + i));
      third = _mm_crc32_u64(third, word(at + 2 * kPart + i));
    }
    crc = moved(moved(crc) ^ second) ^ third;
  }
  for (; bytes >= 8; bytes -= 8, at += 8) crc = _mm_crc32_u64(crc, word(at));
  auto last = static_cast<std::uint32_t>(crc);
  for (; bytes > 0; --bytes, ++at) last = _mm_crc32_u8(last, *at);
  return last;
}

std::uint32_t sum(std::uint32_t crc, const unsigned char* at, std::size_t bytes) {
  static const bool has_instruction = __builtin_cpu_supports("sse4.2") != 0;
  return has_instruction ? by_instruction(crc, at, bytes) : by_table(crc, at, bytes);
}

#elif defined(__aarch64__) && defined(__ARM_FEATURE_CRC32)

std::uint32_t sum(std::uint32_t crc, const unsigned char* at, std::size_t bytes) {
  for (; bytes >= 8; bytes -= 8, at += 8) {
    std::uint64_t value = 0;
    std::memcpy(&value, at, sizeof value);
    crc = __crc32cd(crc, value);
  }
  for (; bytes > 0; --bytes, ++at) crc = __crc32cb(crc, *at);
  return crc;
}

#else

std::uint32_t sum(std::uint32_t crc, const unsigned char* at, std::size_t bytes) { return by_table(crc, at, bytes); }

#endif

}  // namespace

std::uint32_t crc32c(const void* data, std::size_t bytes) noexcept {
  return ~sum(~0U, static_cast<const unsigned char*>(data), bytes);
}

// The first piece's sum is moved over the second's bytes: linear in its bits, so moves over 1, 2, 4, ... bytes are squares of
// each other.
std::uint32_t joined_crc32c(std::uint32_t first, std::uint32_t second, std::uint64_t second_bytes) noexcept {
  using Move = std::array<std::uint32_t, 32>;  // what becomes of each bit
  const auto apply = [](const Move& move, std::uint32_t crc) {
    std::uint32_t moved = 0;
    for (std::size_t bit = 0; crc != 0; ++bit, crc >>= 1)
      if ((crc & 1) != 0) moved ^= move[bit];
    return moved;
  };
  Move move{};
  for (std::size_t bit = 0; bit < move.size(); ++bit) move[bit] = add_zero_bits(std::uint32_t{1} << bit, 8);
  for (; second_bytes != 0; second_bytes >>= 1) {
    if ((second_bytes & 1) != 0) first = apply(move, first);
    const Move once = move;
    for (auto& bit : move) bit = apply(once, bit);
  }
  return first ^ second;
}

std::uint32_t masked_crc32c(const void* data, std::size_t bytes) noexcept {
  const auto crc = crc32c(data, bytes);
  return ((crc >> 15) | (crc << 17)) + 0xa282ead8U;
}

std::uint32_t internal::crc32c_by_table(const void* data, std::size_t bytes) noexcept {
  return ~by_table(~0U, static_cast<const unsigned char*>(data), bytes);
}

}  // namespace lockstep::data

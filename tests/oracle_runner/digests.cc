#include "tests/oracle_runner/digests.h"

#include <algorithm>
#include <array>
#include <bit>
#include <cmath>
#include <vector>

namespace lockstep::oracle {
namespace {

constexpr std::string_view kBase64 = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";

// The first 32 bits of the fractional part of a root of the first 64 primes, as FIPS 180-4 defines the constants.
std::array<std::uint32_t, 64> roots_of_primes(int root) {
  std::array<std::uint32_t, 64> words{};
  std::size_t count = 0;
  for (int n = 2; count < words.size(); ++n) {
    bool is_prime = true;
    for (int d = 2; d * d <= n; ++d) is_prime = is_prime && n % d != 0;
    if (!is_prime) continue;
    const long double value = root == 2 ? std::sqrt(static_cast<long double>(n)) : std::cbrt(static_cast<long double>(n));
    words[count++] = static_cast<std::uint32_t>((value - std::floor(value)) * 4294967296.0L);
  }
  return words;
}

using State = std::array<std::uint32_t, 8>;

void add_block(State& state, const unsigned char* block) {
  static const auto constants = roots_of_primes(3);
  std::array<std::uint32_t, 64> w{};
  for (std::size_t i = 0; i < 16; ++i)
    w[i] = std::uint32_t{block[4 * i]} << 24 | std::uint32_t{block[4 * i + 1]} << 16 | std::uint32_t{block[4 * i + 2]} << 8 |
           block[4 * i + 3];
  for (std::size_t i = 16; i < 64; ++i) {
    const auto low = std::rotr(w[i - 15], 7) ^ std::rotr(w[i - 15], 18) ^ (w[i - 15] >> 3);
    const auto high = std::rotr(w[i - 2], 17) ^ std::rotr(w[i - 2], 19) ^ (w[i - 2] >> 10);
    w[i] = w[i - 16] + low + w[i - 7] + high;
  }
  auto [a, b, c, d, e, f, g, h] = state;
  for (std::size_t i = 0; i < 64; ++i) {
    const auto high = std::rotr(e, 6) ^ std::rotr(e, 11) ^ std::rotr(e, 25);
    const auto first = h + high + ((e & f) ^ (~e & g)) + constants[i] + w[i];
    const auto low = std::rotr(a, 2) ^ std::rotr(a, 13) ^ std::rotr(a, 22);
    const auto second = low + ((a & b) ^ (a & c) ^ (b & c));
    h = g, g = f, f = e, e = d + first, d = c, c = b, b = a, a = first + second;
  }
  const State sums = {a, b, c, d, e, f, g, h};
  for (std::size_t i = 0; i < state.size(); ++i) state[i] += sums[i];
}

}  // namespace

std::string base64_of(std::string_view bytes) {
  std::string text;
  for (std::size_t i = 0; i < bytes.size(); i += 3) {
    std::uint32_t group = 0;
    const auto count = std::min<std::size_t>(3, bytes.size() - i);
    for (std::size_t k = 0; k < 3; ++k) group = group << 8 | (k < count ? static_cast<unsigned char>(bytes[i + k]) : 0U);
    for (std::size_t k = 0; k < 4; ++k) text.push_back(k <= count ? kBase64[(group >> (18 - 6 * k)) & 63] : '=');
  }
  return text;
}

std::string bytes_of_base64(std::string_view text) {
  std::string bytes;
  std::uint32_t group = 0;
  int bits = 0;
  for (const char c : text) {
    const auto value = kBase64.find(c);
    if (value == std::string_view::npos) break;
    group = group << 6 | static_cast<std::uint32_t>(value);
    bits += 6;
    if (bits < 8) continue;
    bits -= 8;
    bytes.push_back(static_cast<char>(group >> bits & 255));
  }
  return bytes;
}

std::string sha256_of(std::string_view bytes) {
  std::vector<unsigned char> padded(bytes.begin(), bytes.end());
  padded.push_back(0x80);
  while (padded.size() % 64 != 56) padded.push_back(0);
  for (int shift = 56; shift >= 0; shift -= 8) padded.push_back(static_cast<unsigned char>(bytes.size() * 8 >> shift));
  const auto roots = roots_of_primes(2);
  State state{};
  std::copy_n(roots.begin(), state.size(), state.begin());
  for (std::size_t at = 0; at < padded.size(); at += 64) add_block(state, padded.data() + at);
  std::string text;
  for (const auto word : state)
    for (int shift = 28; shift >= 0; shift -= 4) text.push_back("0123456789abcdef"[word >> shift & 15]);
  return text;
}

std::uint32_t crc32_of(std::string_view bytes) {
  std::uint32_t sum = ~0U;
  for (const char c : bytes) {
    sum ^= static_cast<unsigned char>(c);
    for (int bit = 0; bit < 8; ++bit) sum = sum >> 1 ^ (sum & 1 ? 0xEDB88320U : 0U);
  }
  return ~sum;
}

}  // namespace lockstep::oracle

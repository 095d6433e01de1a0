#pragma once

#include <zlib.h>

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

// Zip archives with whatever faults a test wants.

namespace lockstep::testing {

struct ZipEntry {
  std::string name = "";
  std::string content = "";
  bool is_deflated = false;
  std::optional<std::uint64_t> claimed_size = std::nullopt;  // in place of the content's
  std::optional<std::uint32_t> claimed_sum = std::nullopt;
  std::optional<int> claimed_method = std::nullopt;
  int flags = 0;
};

inline std::string little_endian(std::uint64_t value, int bytes) {
  std::string text;
  for (int i = 0; i < bytes; ++i) text += static_cast<char>(value >> (8 * i));
  return text;
}

// Deflated without zlib's own frame.
inline std::string deflated(const std::string& content) {
  std::string out(compressBound(content.size()), '\0');
  z_stream stream = {};
  deflateInit2(&stream, Z_BEST_COMPRESSION, Z_DEFLATED, -MAX_WBITS, 8, Z_DEFAULT_STRATEGY);
  stream.next_in = reinterpret_cast<Bytef*>(const_cast<char*>(content.data()));
  stream.avail_in = static_cast<uInt>(content.size());
  stream.next_out = reinterpret_cast<Bytef*>(out.data());
  stream.avail_out = static_cast<uInt>(out.size());
  deflate(&stream, Z_FINISH);
  out.resize(stream.total_out);
  deflateEnd(&stream);
  return out;
}

inline std::string make_zip(const std::vector<ZipEntry>& entries) {
  constexpr std::uint64_t kInExtra = 0xffffffff;  // sizes beyond 32 bits stand in a field of their own
  std::string archive, directory;
  for (const auto& entry : entries) {
    const auto& content = entry.content;
    const auto stored = entry.is_deflated ? deflated(content) : content;
    const auto size = entry.claimed_size.value_or(content.size());
    const auto sum = entry.claimed_sum.value_or(static_cast<std::uint32_t>(
        crc32(0, reinterpret_cast<const Bytef*>(content.data()), static_cast<uInt>(content.size()))));
    const auto size_here = size < kInExtra ? size : kInExtra;
    const auto extra = size < kInExtra ? "" : little_endian(1, 2) + little_endian(8, 2) + little_endian(size, 8);
    const auto facts = little_endian(20, 2) + little_endian(static_cast<std::uint64_t>(entry.flags), 2) +
                       little_endian(static_cast<std::uint64_t>(entry.claimed_method.value_or(entry.is_deflated ? 8 : 0)), 2) +
                       little_endian(0, 4) + little_endian(sum, 4) + little_endian(stored.size(), 4) +
                       little_endian(size_here, 4) + little_endian(entry.name.size(), 2);
    directory += "PK\1\2" + little_endian(20, 2) + facts + little_endian(extra.size(), 2) + std::string(10, '\0') +
                 little_endian(archive.size(), 4) + entry.name + extra;
    archive += "PK\3\4" + facts + little_endian(0, 2) + entry.name + stored;
  }
  return archive + directory + "PK\5\6" + little_endian(0, 4) + little_endian(entries.size(), 2) +
         little_endian(entries.size(), 2) + little_endian(directory.size(), 4) + little_endian(archive.size(), 4) +
         little_endian(0, 2);
}

}  // namespace lockstep::testing

#include "lockstep/data/record_file.h"

#include <array>
#include <utility>

#include "lockstep/base/error.h"
#include "lockstep/base/str.h"

namespace lockstep::data {
namespace {

constexpr std::uint64_t kMostBytes = std::uint64_t{1} << 40;  // a length beyond it is damage
constexpr std::uint64_t kPiece = 1 << 20;                     // a length is believed as far as there is data

// Castagnoli's polynomial, reflected.
constexpr std::array<std::uint32_t, 256> make_table() {
  std::array<std::uint32_t, 256> table{};
  for (std::uint32_t i = 0; i < 256; ++i) {
    std::uint32_t value = i;
    for (int bit = 0; bit < 8; ++bit) value = (value >> 1) ^ (value & 1 ? 0x82f63b78U : 0);
    table[i] = value;
  }
  return table;
}
constexpr auto kTable = make_table();

}  // namespace

std::uint32_t masked_crc32c(const void* data, std::size_t bytes) {
  const auto* at = static_cast<const unsigned char*>(data);
  std::uint32_t crc = ~0U;
  for (std::size_t i = 0; i < bytes; ++i) crc = kTable[(crc ^ at[i]) & 0xff] ^ (crc >> 8);
  crc = ~crc;
  return ((crc >> 15) | (crc << 17)) + 0xa282ead8U;
}

RecordReader::RecordReader(std::string path) : path_(std::move(path)), file_(path_, std::ios::binary) {
  if (!file_) throw Error(ErrorCode::kNotFound, str("the record file '", path_, "' cannot be opened"));
}

void RecordReader::fail(const std::string& what) const {
  throw Error(ErrorCode::kDataLoss, str("the record at byte ", position_, " of '", path_, "' ", what));
}

bool RecordReader::read(void* to, std::size_t bytes, bool may_end) {
  file_.read(static_cast<char*>(to), static_cast<std::streamsize>(bytes));
  const auto got = static_cast<std::size_t>(file_.gcount());
  if (got == bytes) return true;
  if (got == 0 && may_end) return false;
  fail("is cut off");
}

bool RecordReader::next(std::string& record) {
  std::uint64_t length = 0;
  std::uint32_t sum = 0;
  if (!read(&length, sizeof(length), /*may_end=*/true)) return false;
  read(&sum, sizeof(sum), false);
  if (sum != masked_crc32c(&length, sizeof(length)) || length > kMostBytes) fail("has a damaged length");
  record.clear();
  for (std::uint64_t left = length; left > 0;) {
    const auto piece = std::min(left, kPiece);
    record.resize(record.size() + piece);
    read(record.data() + record.size() - piece, piece, false);
    left -= piece;
  }
  read(&sum, sizeof(sum), false);
  if (sum != masked_crc32c(record.data(), record.size())) fail("has damaged data");
  position_ += 2 * sizeof(sum) + sizeof(length) + length;
  return true;
}

void write_records(const std::string& path, const std::vector<std::string>& records) {
  std::ofstream file(path, std::ios::binary);
  const auto put = [&](const void* data, std::size_t bytes) {
    file.write(static_cast<const char*>(data), static_cast<std::streamsize>(bytes));
  };
  for (const auto& record : records) {
    const std::uint64_t length = record.size();
    const auto length_sum = masked_crc32c(&length, sizeof(length));
    const auto data_sum = masked_crc32c(record.data(), record.size());
    put(&length, sizeof(length));
    put(&length_sum, sizeof(length_sum));
    put(record.data(), record.size());
    put(&data_sum, sizeof(data_sum));
  }
  file.flush();
  if (!file) throw Error(ErrorCode::kUnavailable, str("the record file '", path, "' cannot be written"));
}

}  // namespace lockstep::data

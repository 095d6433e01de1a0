#include "lockstep/data/io/tf_record.h"

#include <algorithm>
#include <cstring>
#include <limits>
#include <utility>

#include "lockstep/base/error.h"
#include "lockstep/base/str.h"
#include "lockstep/data/io/crc32c.h"
#include "lockstep/data/io/record_frame.h"

namespace lockstep::data {
namespace {

constexpr std::size_t kLength = sizeof(std::uint64_t);
constexpr std::size_t kSum = sizeof(std::uint32_t);
constexpr std::size_t kHeader = kLength + kSum;
static_assert(kHeader == sizeof(internal::RecordFrame::header) && kSum == sizeof(internal::RecordFrame::sum));

template <typename T>
T load(std::string_view bytes, std::size_t offset) {
  T value{};
  std::memcpy(&value, bytes.data() + offset, sizeof value);
  return value;
}

}  // namespace

void RecordReader::fail(const std::string& what) const {
  throw Error(ErrorCode::kDataLoss, str("the record at byte ", start_, " of '", file_.path(), "' ", what));
}

std::string_view RecordReader::require(std::size_t bytes) {
  // A length that is nonsense must not cost memory.
  constexpr std::size_t kCheap = std::size_t{1} << 20;
  auto there = file_.peek(std::min(bytes, kCheap));
  if (there.size() >= bytes) return there;
  if (const auto most = file_.most_left(); most < bytes)
    fail(str("is cut off: ", bytes, " bytes are needed and ", most, " are there"));
  there = file_.peek(bytes);
  if (there.size() < bytes) fail(str("is cut off: ", bytes, " bytes are needed and ", there.size(), " are there"));
  return there;
}

bool RecordReader::next(std::string_view& record) {
  file_.consume(std::exchange(to_consume_, 0));
  damaged_ = 0;
  if (file_.peek(kHeader).empty()) return false;
  const auto header = require(kHeader);
  const auto length = load<std::uint64_t>(header, 0);
  if (load<std::uint32_t>(header, kLength) != masked_crc32c(header.data(), kLength))
    fail(start_ == 0 ? "has a damaged length; is it a TFRecord file, and compressed as was said?" : "has a damaged length");
  constexpr std::uint64_t kMost = std::numeric_limits<std::size_t>::max() - kHeader - kSum;
  if (length > kMost) fail(str("claims to have ", length, " bytes"));
  const auto size = kHeader + static_cast<std::size_t>(length) + kSum;
  const auto whole = require(size);
  record = whole.substr(kHeader, static_cast<std::size_t>(length));
  if (load<std::uint32_t>(whole, kHeader + record.size()) != masked_crc32c(record.data(), record.size())) {
    damaged_ = size;
    fail("has damaged data");
  }
  to_consume_ = size;
  start_ += size;
  return true;
}

bool RecordReader::skip_damage() {
  if (damaged_ == 0) return false;
  start_ += damaged_;
  file_.consume(std::exchange(damaged_, 0));
  return true;
}

void RecordReader::seek(std::uint64_t position) {
  file_.seek(position);
  start_ = position;
  to_consume_ = 0;
  damaged_ = 0;
}

internal::RecordFrame internal::frame_of(std::string_view record) noexcept {
  RecordFrame frame;
  const std::uint64_t length = record.size();
  std::memcpy(frame.header.data(), &length, kLength);
  const auto length_sum = masked_crc32c(frame.header.data(), kLength);
  std::memcpy(frame.header.data() + kLength, &length_sum, kSum);
  const auto sum = masked_crc32c(record.data(), record.size());
  std::memcpy(frame.sum.data(), &sum, kSum);
  return frame;
}

void RecordWriter::write(std::string_view record) {
  const auto frame = internal::frame_of(record);
  file_.write({frame.header.data(), frame.header.size()});
  file_.write(record);
  file_.write({frame.sum.data(), frame.sum.size()});
}

void write_records(const std::string& path, const std::vector<std::string>& records, Compression compression) {
  RecordWriter writer(path, compression);
  for (const auto& record : records) writer.write(record);
  writer.close();
}

}  // namespace lockstep::data

#include "lockstep/data/position.h"

#include <ATen/ATen.h>

#include <cstring>
#include <limits>
#include <utility>

#include "lockstep/base/error.h"
#include "lockstep/base/str.h"
#include "lockstep/data/io/crc32c.h"

namespace lockstep::data::internal {
namespace {

constexpr std::string_view kVersion = "LPos0001";  // another one when the bytes mean something else
constexpr std::size_t kSum = sizeof(std::uint32_t);
constexpr std::int64_t kStrings = -1;  // in place of a dtype

[[noreturn]] void throw_damaged() { throw Error(ErrorCode::kDataLoss, "the saved position of a dataset is damaged"); }

}  // namespace

void PositionWriter::put(std::int64_t number) { bytes_.append(reinterpret_cast<const char*>(&number), sizeof number); }

void PositionWriter::put(std::string_view bytes) {
  put(static_cast<std::int64_t>(bytes.size()));
  bytes_.append(bytes);
}

void PositionWriter::put(const Element& element) {
  put(static_cast<std::int64_t>(element.size()));
  for (const auto& component : element.components()) {
    put(std::string_view(component.name));
    put(component.is_bytes() ? kStrings : static_cast<std::int64_t>(component.tensor().scalar_type()));
    const auto sizes = component.sizes();
    put(static_cast<std::int64_t>(sizes.size()));
    for (const auto size : sizes) put(size);
    if (component.is_bytes()) {
      for (const auto& value : component.bytes().values) put(std::string_view(value));
    } else {
      const auto tensor = component.tensor().detach().cpu().contiguous();
      put(std::string_view(static_cast<const char*>(tensor.data_ptr()), tensor.nbytes()));
    }
  }
}

PositionWriter::PositionWriter() : bytes_(kVersion) {}

std::string PositionWriter::take() && {
  const auto sum = masked_crc32c(bytes_.data(), bytes_.size());
  bytes_.append(reinterpret_cast<const char*>(&sum), kSum);
  return std::move(bytes_);
}

PositionReader::PositionReader(std::string_view bytes) : left_(bytes) {
  if (bytes.empty()) throw Error(ErrorCode::kDataLoss, "the saved position of a dataset is empty; was its file there?");
  if (left_.size() < kSum) throw_damaged();
  left_.remove_suffix(kSum);
  std::uint32_t sum = 0;
  std::memcpy(&sum, bytes.data() + left_.size(), kSum);
  if (sum != masked_crc32c(left_.data(), left_.size())) throw_damaged();
  if (!left_.starts_with(kVersion))
    throw Error(ErrorCode::kInvalidArgument, "the saved position of a dataset was made by another version of this library");
  left_.remove_prefix(kVersion.size());
}

std::string_view PositionReader::take(std::size_t bytes) {
  if (bytes > left_.size()) throw_damaged();
  const auto taken = left_.substr(0, bytes);
  left_.remove_prefix(bytes);
  return taken;
}

void PositionReader::expect(std::string_view stream) {
  const auto found = bytes();
  if (found != stream)
    throw Error(ErrorCode::kInvalidArgument,
                lockstep::str("the saved position is of another pipeline: it has ", found, " where this one has ", stream,
                              "; restore it into an iterator of the dataset it was saved from"));
}

std::int64_t PositionReader::number() {
  std::int64_t value = 0;
  std::memcpy(&value, take(sizeof value).data(), sizeof value);
  return value;
}

std::size_t PositionReader::count(std::size_t bytes) {
  const auto value = number();
  if (value < 0 || static_cast<std::uint64_t>(value) > left_.size() / bytes) throw_damaged();
  return static_cast<std::size_t>(value);
}

std::string_view PositionReader::bytes() { return take(count()); }

Element PositionReader::element() {
  std::vector<Component> components(count(3 * sizeof(std::int64_t)));
  for (auto& component : components) {
    component.name = bytes();
    const auto dtype = number();
    std::vector<std::int64_t> sizes(count(sizeof(std::int64_t)));
    std::int64_t values = 1;
    for (auto& size : sizes) {
      size = number();
      if (size < 0 || (size > 0 && values > std::numeric_limits<std::int64_t>::max() / size)) throw_damaged();
      values *= size;
    }
    if (dtype == kStrings) {
      if (static_cast<std::uint64_t>(values) > left_.size() / sizeof(std::int64_t)) throw_damaged();
      Bytes strings{std::vector<std::string>(static_cast<std::size_t>(values)), sizes};
      for (auto& value : strings.values) value = bytes();
      component.value = std::move(strings);
      continue;
    }
    if (dtype < 0 || dtype >= static_cast<std::int64_t>(at::ScalarType::Undefined)) throw_damaged();
    const auto type = static_cast<at::ScalarType>(dtype);
    const auto content = bytes();
    if (content.size() != static_cast<std::size_t>(values) * c10::elementSize(type)) throw_damaged();
    auto tensor = at::empty(sizes, type);
    if (!content.empty()) std::memcpy(tensor.data_ptr(), content.data(), content.size());
    component.value = std::move(tensor);
  }
  return Element(std::move(components));
}

void PositionReader::require_end() const {
  if (!left_.empty())
    throw Error(ErrorCode::kInvalidArgument, "the saved position is of another pipeline, which has more operations");
}

}  // namespace lockstep::data::internal

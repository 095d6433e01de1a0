#pragma once

#include <bit>
#include <cstdint>
#include <cstring>
#include <string>
#include <string_view>

// The bytes of protocol buffers: fields one after the other, each a number, how it is written, and a value.

namespace lockstep::data::internal {

// How a value is written.
enum class Wire : std::uint8_t { kVarint = 0, k64 = 1, kBytes = 2, k32 = 5 };

struct Field {
  std::uint64_t number = 0;
  Wire wire = Wire::kVarint;
  std::uint64_t value = 0;      // kVarint
  std::string_view bytes = {};  // all others
};

static_assert(std::endian::native == std::endian::little, "numbers are copied as they lie there");

// Fields one after the other. Every read is checked against the end.
class Fields {
 public:
  explicit Fields(std::string_view bytes) : at_(bytes.data()), end_(bytes.data() + bytes.size()) {}

  bool is_damaged() const noexcept { return is_damaged_; }

  // False at the end, and where the bytes make no sense.
  bool next(Field& field) {
    if (at_ == end_ || is_damaged_) return false;
    std::uint64_t tag = 0;
    if (!varint(tag)) return damaged();
    field.number = tag >> 3;
    field.wire = static_cast<Wire>(tag & 7);
    if (field.number == 0) return damaged();
    switch (field.wire) {
      case Wire::kVarint: return varint(field.value) || damaged();
      case Wire::k64: return take(8, field.bytes);
      case Wire::k32: return take(4, field.bytes);
      case Wire::kBytes: {
        std::uint64_t length = 0;
        return varint(length) ? take(length, field.bytes) : damaged();
      }
      default: return damaged();
    }
  }

  bool varint(std::uint64_t& value) {
    if (at_ != end_ && static_cast<unsigned char>(*at_) < 0x80) {
      value = static_cast<unsigned char>(*at_++);
      return true;
    }
    value = 0;
    for (unsigned shift = 0; shift < 64; shift += 7) {
      if (at_ == end_) return false;
      const auto byte = static_cast<unsigned char>(*at_++);
      value |= static_cast<std::uint64_t>(byte & 0x7f) << shift;
      if (byte < 0x80) return true;
    }
    return false;
  }

  bool is_at_end() const noexcept { return at_ == end_; }

 private:
  bool damaged() {
    is_damaged_ = true;
    return false;
  }

  bool take(std::uint64_t length, std::string_view& bytes) {
    if (length > static_cast<std::uint64_t>(end_ - at_)) return damaged();
    bytes = {at_, static_cast<std::size_t>(length)};
    at_ += length;
    return true;
  }

  const char* at_;
  const char* const end_;
  bool is_damaged_ = false;
};

inline bool is_message(const Field& field, std::uint64_t number) {
  return field.number == number && field.wire == Wire::kBytes;
}

// Of a field that is written in as many bytes as T has (k64, k32).
template <typename T>
T fixed_value(const Field& field) {
  T value{};
  if (field.bytes.size() == sizeof value) std::memcpy(&value, field.bytes.data(), sizeof value);
  return value;
}

inline void put_varint(std::string& to, std::uint64_t value) {
  for (; value >= 0x80; value >>= 7) to.push_back(static_cast<char>(value | 0x80));
  to.push_back(static_cast<char>(value));
}

inline void put_tag(std::string& to, std::uint64_t number, Wire wire) {
  put_varint(to, number << 3 | static_cast<std::uint64_t>(wire));
}

inline void put_number(std::string& to, std::uint64_t number, std::int64_t value) {
  put_tag(to, number, Wire::kVarint);
  put_varint(to, static_cast<std::uint64_t>(value));
}

// A float or a double.
template <typename T>
void put_fixed(std::string& to, std::uint64_t number, T value) {
  static_assert(sizeof value == 8 || sizeof value == 4);
  put_tag(to, number, sizeof value == 8 ? Wire::k64 : Wire::k32);
  to.append(reinterpret_cast<const char*>(&value), sizeof value);
}

inline void put_message(std::string& to, std::uint64_t number, std::string_view bytes) {
  put_tag(to, number, Wire::kBytes);
  put_varint(to, bytes.size());
  to.append(bytes);
}

}  // namespace lockstep::data::internal

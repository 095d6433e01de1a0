#include "lockstep/data/io/example.h"

#include <bit>
#include <cstring>
#include <type_traits>

namespace lockstep::data {
namespace {

// How protocol buffers write a value.
enum class Wire : std::uint8_t { kVarint = 0, k64 = 1, kBytes = 2, k32 = 5 };

struct Field {
  std::uint64_t number = 0;
  Wire wire = Wire::kVarint;
  std::uint64_t value = 0;      // kVarint
  std::string_view bytes = {};  // all others
};

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

bool is_message(const Field& field, std::uint64_t number) { return field.number == number && field.wire == Wire::kBytes; }

bool read_feature(std::string_view bytes, FeatureView& feature) {
  Fields fields(bytes);
  for (Field field; fields.next(field);) {
    if (field.number < 1 || field.number > 3) continue;
    if (field.wire != Wire::kBytes) return false;
    feature.kind = static_cast<FeatureKind>(field.number);
    feature.list = field.bytes;
  }
  return !fields.is_damaged();
}

bool read_entry(std::string_view bytes, FeatureView& feature) {
  Fields fields(bytes);
  for (Field field; fields.next(field);) {
    if (is_message(field, 1)) feature.name = field.bytes;
    else if (is_message(field, 2) && !read_feature(field.bytes, feature)) return false;
  }
  return !fields.is_damaged();
}

// Calls take(bits) for every value of a list of numbers, packed or one by one. False when it is damaged.
template <typename T, typename Take>
bool for_each_number(std::string_view list, Take take) {
  constexpr auto kSingle = std::is_same_v<T, float> ? Wire::k32 : Wire::kVarint;
  Fields fields(list);
  for (Field field; fields.next(field);) {
    if (field.number != 1) continue;
    if (field.wire == kSingle) {
      if constexpr (std::is_same_v<T, float>) take(field.bytes.data());
      else take(field.value);
    } else if (field.wire != Wire::kBytes) {
      return false;
    } else if constexpr (std::is_same_v<T, float>) {
      if (field.bytes.size() % sizeof(float) != 0) return false;
      for (std::size_t at = 0; at < field.bytes.size(); at += sizeof(float)) take(field.bytes.data() + at);
    } else {
      Fields packed(field.bytes);
      for (std::uint64_t value = 0; !packed.is_at_end(); take(value))
        if (!packed.varint(value)) return false;
    }
  }
  return !fields.is_damaged();
}

template <typename Take>
bool for_each_string(std::string_view list, Take take) {
  Fields fields(list);
  for (Field field; fields.next(field);) {
    if (field.number != 1) continue;
    if (field.wire != Wire::kBytes) return false;
    take(field.bytes);
  }
  return !fields.is_damaged();
}

void put_varint(std::string& to, std::uint64_t value) {
  for (; value >= 0x80; value >>= 7) to.push_back(static_cast<char>(value | 0x80));
  to.push_back(static_cast<char>(value));
}

void put_message(std::string& to, std::uint64_t number, std::string_view bytes) {
  put_varint(to, number << 3 | static_cast<std::uint64_t>(Wire::kBytes));
  put_varint(to, bytes.size());
  to.append(bytes);
}

std::string pack(const FeatureValues& values) {
  std::string list;
  if (const auto* strings = std::get_if<std::vector<std::string>>(&values)) {
    for (const auto& one : *strings) put_message(list, 1, one);
    return list;
  }
  std::string packed;
  if (const auto* floats = std::get_if<std::vector<float>>(&values)) {
    if (!floats->empty()) packed.assign(reinterpret_cast<const char*>(floats->data()), floats->size() * sizeof(float));
  } else {
    for (const auto one : std::get<std::vector<std::int64_t>>(values)) put_varint(packed, static_cast<std::uint64_t>(one));
  }
  if (!packed.empty()) put_message(list, 1, packed);
  return list;
}

static_assert(std::endian::native == std::endian::little, "floats are copied as they lie there");

}  // namespace

const char* name_of(FeatureKind kind) noexcept {
  switch (kind) {
    case FeatureKind::kBytes: return "bytes";
    case FeatureKind::kFloat: return "float32";
    case FeatureKind::kInt64: return "int64";
    default: return "nothing";
  }
}

bool visit_features(std::string_view example, const std::function<void(const FeatureView&)>& visit) {
  Fields outer(example);
  for (Field field; outer.next(field);) {
    if (field.number != 1) continue;
    if (field.wire != Wire::kBytes) return false;
    Fields entries(field.bytes);
    for (Field entry; entries.next(entry);) {
      if (!is_message(entry, 1)) continue;
      FeatureView feature;
      if (!read_entry(entry.bytes, feature)) return false;
      visit(feature);
    }
    if (entries.is_damaged()) return false;
  }
  return !outer.is_damaged();
}

std::int64_t count_values(const FeatureView& feature) {
  std::int64_t count = 0;
  const auto add = [&](auto&&) { ++count; };
  bool is_whole = true;
  if (feature.kind == FeatureKind::kBytes) is_whole = for_each_string(feature.list, add);
  else if (feature.kind == FeatureKind::kFloat) is_whole = for_each_number<float>(feature.list, add);
  else if (feature.kind == FeatureKind::kInt64) is_whole = for_each_number<std::int64_t>(feature.list, add);
  return is_whole ? count : -1;
}

bool read_values(const FeatureView& feature, std::span<std::int64_t> to) {
  std::size_t count = 0;
  const bool is_whole = for_each_number<std::int64_t>(feature.list, [&](std::uint64_t value) {
    if (count < to.size()) to[count] = static_cast<std::int64_t>(value);
    ++count;
  });
  return is_whole && count == to.size();
}

bool read_values(const FeatureView& feature, std::span<float> to) {
  std::size_t count = 0;
  const bool is_whole = for_each_number<float>(feature.list, [&](const char* bytes) {
    if (count < to.size()) std::memcpy(&to[count], bytes, sizeof(float));
    ++count;
  });
  return is_whole && count == to.size();
}

bool read_values(const FeatureView& feature, std::vector<std::string_view>& to) {
  to.clear();
  return for_each_string(feature.list, [&](std::string_view value) { to.push_back(value); });
}

std::string serialize_example(const std::vector<std::pair<std::string, FeatureValues>>& features) {
  std::string entries;
  for (const auto& [name, values] : features) {
    std::string feature;
    put_message(feature, values.index() + 1, pack(values));
    std::string entry;
    put_message(entry, 1, name);
    put_message(entry, 2, feature);
    put_message(entries, 1, entry);
  }
  std::string example;
  put_message(example, 1, entries);
  return example;
}

}  // namespace lockstep::data

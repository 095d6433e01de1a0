#include "lockstep/data/io/example.h"

#include <cstring>
#include <type_traits>

#include "lockstep/data/io/wire.h"

namespace lockstep::data {
namespace {

using internal::Field;
using internal::Fields;
using internal::is_message;
using internal::put_message;
using internal::put_varint;
using internal::Wire;

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

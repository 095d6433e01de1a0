#pragma once

#include <array>
#include <concepts>
#include <cstdint>
#include <cstring>
#include <optional>
#include <string>
#include <string_view>
#include <type_traits>
#include <utility>
#include <vector>

#include "lockstep/base/error.h"

// Small messages between the tasks of a job, as bytes. All of them run the same build (the server checks it), so a message has
// no names and no versions in it: a struct lists its fields once, and is written and read by that list.
//
//   struct Reading {
//     std::string name;
//     std::vector<std::int64_t> shape;
//     template <typename Fields>
//     void list(Fields& fields) { fields(name, shape); }
//   };
//   const std::string bytes = to_bytes(Reading{"w", {2, 3}});
//   const auto back = from_bytes<Reading>(bytes);

namespace lockstep::ps {

template <typename T, typename Fields>
concept ListsFields = requires(T& value, Fields& fields) {
  value.list(fields);
};

class FieldWriter {
 public:
  FieldWriter() { bytes_.reserve(256); }

  template <typename... T>
  void operator()(const T&... values) {
    (put(values), ...);
  }
  std::string take() { return std::move(bytes_); }

 private:
  void put(std::string_view text) {
    put(static_cast<std::uint64_t>(text.size()));
    bytes_.append(text);
  }
  void put(const std::string& text) { put(std::string_view(text)); }
  void put(bool value) { put(static_cast<std::uint8_t>(value)); }
  template <typename T>
  requires((std::is_arithmetic_v<T> && !std::same_as<T, bool>) || std::is_enum_v<T>) void put(T value) {
    char raw[sizeof value];  // NOLINT: the machines of a job have one byte order
    std::memcpy(raw, &value, sizeof value);
    bytes_.append(raw, sizeof value);
  }
  template <typename T>
  void put(const std::vector<T>& values) {
    put(static_cast<std::uint64_t>(values.size()));
    for (const auto& value : values) put(static_cast<const T&>(value));
  }
  template <typename T>
  void put(const std::optional<T>& value) {
    put(value.has_value());
    if (value) put(*value);
  }
  template <typename A, typename B>
  void put(const std::pair<A, B>& value) {
    put(value.first);
    put(value.second);
  }
  template <typename T>
  requires ListsFields<T, FieldWriter>
  void put(const T& value) { const_cast<T&>(value).list(*this); }  // NOLINT: a writer reads

  std::string bytes_;
};

// Throws kInvalidArgument for bytes that are no such message: cut, too long, or with lengths that cannot be. Whatever the
// bytes are, it takes no more memory than a few times their number.
class FieldReader {
 public:
  explicit FieldReader(std::string_view bytes) : left_(bytes) {}

  template <typename... T>
  void operator()(T&... values) {
    (get(values), ...);
  }
  bool is_at_end() const noexcept { return left_.empty(); }
  // Bytes that have not been read.
  std::size_t left() const noexcept { return left_.size(); }

 private:
  std::string_view take(std::uint64_t count) {
    if (count > left_.size()) throw Error(ErrorCode::kInvalidArgument, "a message of a task is cut, or was not written by one");
    const auto taken = left_.substr(0, count);
    left_.remove_prefix(count);
    return taken;
  }
  std::uint64_t length() {
    std::uint64_t count = 0;
    get(count);
    if (count > left_.size()) take(count);  // every element has a byte at least
    return count;
  }
  void get(std::string& text) { text = std::string(take(length())); }
  void get(bool& value) {
    std::uint8_t byte = 0;
    get(byte);
    value = byte != 0;
  }
  template <typename T>
  requires((std::is_arithmetic_v<T> && !std::same_as<T, bool>) || std::is_enum_v<T>) void get(T& value) {
    std::memcpy(&value, take(sizeof value).data(), sizeof value);
  }
  template <typename T>
  void get(std::vector<T>& values) {
    const auto count = length();
    values.clear();
    for (std::uint64_t i = 0; i < count; ++i) {
      T value{};
      get(value);
      values.push_back(std::move(value));
    }
  }
  template <typename T>
  void get(std::optional<T>& value) {
    bool is_there = false;
    get(is_there);
    value.reset();
    if (is_there) get(value.emplace());
  }
  template <typename A, typename B>
  void get(std::pair<A, B>& value) {
    get(value.first);
    get(value.second);
  }
  template <typename T>
  requires ListsFields<T, FieldReader>
  void get(T& value) { value.list(*this); }

  std::string_view left_;
};

template <typename T>
std::string to_bytes(const T& message) {
  FieldWriter writer;
  writer(message);
  return writer.take();
}

// Throws kInvalidArgument for anything but the bytes of one such message.
template <typename T>
T from_bytes(std::string_view bytes) {
  FieldReader reader(bytes);
  T message{};
  reader(message);
  if (!reader.is_at_end()) throw Error(ErrorCode::kInvalidArgument, "a message of a task has more bytes than fields");
  return message;
}

}  // namespace lockstep::ps

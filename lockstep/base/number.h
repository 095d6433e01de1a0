#pragma once

#include <charconv>
#include <cstdint>
#include <optional>
#include <string_view>

namespace lockstep {

// The number that the whole of `text` is, in decimal; nothing when there is anything else in it, or it does not fit.
template <typename T = std::int64_t>
std::optional<T> whole_number(std::string_view text) {
  T value = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  if (error != std::errc() || end != text.data() + text.size()) return std::nullopt;
  return value;
}

}  // namespace lockstep

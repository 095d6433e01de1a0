#pragma once

#include <charconv>
#include <cstdint>
#include <optional>
#include <string>
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

// The shortest text that whole_number() reads back as the same number, every bit of it. Whatever the locale.
template <typename T>
std::string exact_text(T value) {
  char text[64];  // NOLINT: std::to_chars wants one
  return {text, std::to_chars(text, text + sizeof text, value).ptr};
}

// As printf shows it with "%.3f" (std::chars_format::fixed, 3), "%.3e" (scientific) or "%.3g" (general). Whatever the locale.
inline std::string shown(double value, std::chars_format form, int digits) {
  char text[512];  // NOLINT: the largest double has 309 digits before its point
  return {text, std::to_chars(text, text + sizeof text, value, form, digits).ptr};
}

}  // namespace lockstep

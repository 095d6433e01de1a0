#include "lockstep/train/callbacks/file_name.h"

#include <cmath>
#include <regex>

#include "lockstep/base/error.h"
#include "lockstep/base/number.h"
#include "lockstep/base/str.h"

namespace lockstep::internal {
namespace {

std::chars_format form_of(char letter) {
  return letter == 'f' ? std::chars_format::fixed : letter == 'e' ? std::chars_format::scientific : std::chars_format::general;
}

// Brought to `width` with spaces, or with zeros behind the sign.
std::string padded(std::string text, std::size_t width, bool with_zeros) {
  if (text.size() < width)
    text.insert(with_zeros && text.starts_with('-') ? 1 : 0, width - text.size(), with_zeros ? '0' : ' ');
  return text;
}

std::string formatted(double value, const std::string& spec, const std::string& pattern) {
  static const std::regex form("(0?)([0-9]{0,2})(?:d?|\\.([0-9]{1,2})([feg]))");
  std::smatch found;
  if (!std::regex_match(spec, found, form))
    throw Error(ErrorCode::kInvalidArgument, str("the file name '", pattern, "' has the format '", spec,
                                                 "'; use {epoch:02d} or {val_loss:.3f}, for example"));
  constexpr int kUsualDigits = 6;
  const auto text = found[3].matched ? shown(value, form_of(spec.back()), *whole_number<int>(found[3].str()))
                    : spec.empty() && value != std::floor(value) ? shown(value, std::chars_format::general, kUsualDigits)
                                                                 : str(std::llround(value));
  return padded(text, whole_number<std::size_t>(found[2].str()).value_or(0), found[1].length() > 0);
}

template <typename F>
std::string with_fields(const std::string& pattern, F&& value_of) {
  static const std::regex field("\\{([^{}:]+):?([^{}]*)\\}");
  std::string name;
  auto rest = pattern.cbegin();
  for (std::smatch found; std::regex_search(rest, pattern.cend(), found, field); rest = found.suffix().first)
    name += found.prefix().str() + formatted(value_of(found[1].str()), found[2].str(), pattern);
  return name + std::string(rest, pattern.cend());
}

}  // namespace

std::string file_name(const std::string& pattern, const Logs& values) {
  return with_fields(pattern, [&](const std::string& name) { return values.at(name); });
}

void require_formats(const std::string& pattern) {
  with_fields(pattern, [](const std::string&) { return 0.0; });
}

}  // namespace lockstep::internal

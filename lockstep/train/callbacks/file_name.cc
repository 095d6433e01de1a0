#include "lockstep/train/callbacks/file_name.h"

#include <cmath>
#include <cstdio>
#include <regex>

#include "lockstep/base/error.h"
#include "lockstep/base/str.h"

namespace lockstep::internal {
namespace {

std::string formatted(double value, const std::string& spec, const std::string& pattern) {
  static const std::regex whole("0?[0-9]{0,2}d?"), fraction("[0-9]{0,2}\\.[0-9]{1,2}[feg]");
  char text[128];
  if (std::regex_match(spec, fraction)) std::snprintf(text, sizeof text, ("%" + spec).c_str(), value);
  else if (spec.empty() && value != std::floor(value)) std::snprintf(text, sizeof text, "%g", value);
  else if (std::regex_match(spec, whole))
    std::snprintf(text, sizeof text, ("%" + (spec.ends_with("d") ? spec.substr(0, spec.size() - 1) : spec) + "lld").c_str(),
                  std::llround(value));
  else
    throw Error(ErrorCode::kInvalidArgument, str("the file name '", pattern, "' has the format '", spec,
                                                 "'; use {epoch:02d} or {val_loss:.3f}, for example"));
  return text;
}

}  // namespace

std::string file_name(const std::string& pattern, const Logs& values) {
  static const std::regex field("\\{([^{}:]+):?([^{}]*)\\}");
  std::string name;
  auto rest = pattern.cbegin();
  for (std::smatch found; std::regex_search(rest, pattern.cend(), found, field); rest = found.suffix().first)
    name += found.prefix().str() + formatted(values.at(found[1].str()), found[2].str(), pattern);
  return name + std::string(rest, pattern.cend());
}

}  // namespace lockstep::internal

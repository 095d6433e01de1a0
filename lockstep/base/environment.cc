#include "lockstep/base/environment.h"

#include <cstdlib>

namespace lockstep {

std::optional<std::string> Environment::get(const std::string& name) const {
  if (given_) {
    const auto found = given_->find(name);
    return found == given_->end() ? std::nullopt : std::optional(found->second);
  }
  const char* text = std::getenv(name.c_str());
  return text == nullptr ? std::nullopt : std::optional<std::string>(text);
}

}  // namespace lockstep

#pragma once

#include <map>
#include <optional>
#include <string>
#include <utility>

namespace lockstep {

// Environment variables: the process's own, or given ones in their place.
class Environment {
 public:
  Environment() = default;  // the process's
  static Environment of(std::map<std::string, std::string> variables) {
    Environment environment;
    environment.given_ = std::move(variables);
    return environment;
  }

  // Nothing: not set. Set to nothing is an empty string.
  std::optional<std::string> get(const std::string& name) const;

 private:
  std::optional<std::map<std::string, std::string>> given_;
};

}  // namespace lockstep

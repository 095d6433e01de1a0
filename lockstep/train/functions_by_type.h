#pragma once

#include <map>
#include <mutex>
#include <string>
#include <typeinfo>
#include <utility>

#include "lockstep/base/error.h"
#include "lockstep/base/str.h"

namespace lockstep::internal {

// Functions that other tasks of a job, which run the same program, find by the names of their types: those of lambdas without
// captures. Filled before main(); thread-safe.
template <typename Function>
class FunctionsByType {
 public:
  explicit FunctionsByType(const char* what) : what_(what) {}

  // The name under which it is found. Types of different files may share a name, and are then numbered, which is the same in
  // all processes of one program.
  std::string add(const std::type_info& type, Function function) {
    const std::lock_guard lock(mu_);
    std::string name = type.name();
    for (int number = 2;; ++number) {
      const auto [entry, is_new] = entries_.try_emplace(name, &type, function);
      if (is_new || *entry->second.first == type) return name;
      name = str(type.name(), "#", number);
    }
  }

  // Throws kNotFound with the name.
  Function find(const std::string& name) const {
    const std::lock_guard lock(mu_);
    const auto found = entries_.find(name);
    if (found == entries_.end())
      throw Error(ErrorCode::kNotFound,
                  str("there is no ", what_, " '", name, "' in this program: all tasks of a job must run the same program"));
    return found->second.second;
  }

 private:
  // Const after construction.
  const char* const what_;

  // Guarded by mu_.
  mutable std::mutex mu_;
  std::map<std::string, std::pair<const std::type_info*, Function>> entries_;
};

}  // namespace lockstep::internal

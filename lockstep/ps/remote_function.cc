#include "lockstep/ps/remote_function.h"

#include <cxxabi.h>

#include <cstdlib>
#include <memory>

#include "lockstep/base/error.h"
#include "lockstep/base/nearest.h"
#include "lockstep/base/str.h"

namespace lockstep::ps {

FunctionRegistry& FunctionRegistry::global() {
  static FunctionRegistry registry;
  return registry;
}

std::string FunctionRegistry::add(RegisteredFunction function) {
  const std::lock_guard lock(mu_);
  const auto name = function.name;
  const auto [entry, is_new] = functions_.try_emplace(name, std::move(function));
  if (!is_new && !entry->second.is(function) && mistake_.empty())
    mistake_ = str("two different functions are registered as '", name, "'; give one of them another name");
  return name;
}

std::string FunctionRegistry::add_by_type(RegisteredFunction function) {
  const std::lock_guard lock(mu_);
  const auto base = function.name;
  for (int number = 2;; ++number) {
    const auto [entry, is_new] = functions_.try_emplace(function.name, function);
    if (is_new || entry->second.is(function)) return entry->first;
    function.name = str(base, "#", number);
  }
}

const RegisteredFunction& FunctionRegistry::find(const std::string& name) const {
  const std::lock_guard lock(mu_);
  const auto found = functions_.find(name);
  if (found == functions_.end())
    throw Error(ErrorCode::kNotFound, str("there is no closure '", readable_name(name), "' (", name,
                                          ") in this program: all tasks of a job must run the same program, and register it "
                                          "before main() runs"));
  return found->second;
}

std::string FunctionRegistry::name_of(void (*pointer)()) const {
  const std::lock_guard lock(mu_);
  for (const auto& [name, function] : functions_)
    if (function.pointer == pointer) return name;
  throw Error(ErrorCode::kInvalidArgument,
              "a function given to a coordinator has no name by which workers could find it: register it with "
              "remote_function(\"name\", function), or give a lambda without captures that calls it");
}

void FunctionRegistry::require_sound() const {
  const std::lock_guard lock(mu_);
  if (!mistake_.empty()) throw Error(ErrorCode::kInvalidArgument, mistake_);
}

std::string readable_name(const std::string& name) {
  int status = 0;
  const std::unique_ptr<char, decltype(&std::free)> text(abi::__cxa_demangle(name.c_str(), nullptr, nullptr, &status),
                                                         &std::free);
  return status == 0 && text ? text.get() : name;
}

}  // namespace lockstep::ps

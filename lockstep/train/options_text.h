#pragma once

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <optional>
#include <string>
#include <tuple>
#include <type_traits>
#include <vector>

#include "lockstep/base/error.h"
#include "lockstep/base/nearest.h"
#include "lockstep/base/str.h"
#include "lockstep/cluster/json.h"

// Options of optimizers, losses and metrics as JSON, for other tasks of a job. Each kind lists its options once, by name:
//
//   template <typename F>
//   void list(HuberOptions& o, F& f) { f("delta", o.delta); }
//
// and `f` writes or reads. What is absent has its default.

namespace lockstep::internal {

struct OptionsWriter {
  OrderedJson& out;
  const char* what;  // "an optimizer", for messages

  void operator()(const char* name, double value) {
    if (!std::isfinite(value))
      throw Error(ErrorCode::kInvalidArgument, str(what, " as text: ", name, " is ", value, "; it must be finite"));
    out[name] = value;
  }
  template <typename T>
  requires(std::is_integral_v<T> || std::is_enum_v<T>) void operator()(const char* name, T value) {
    if constexpr (std::is_enum_v<T>) out[name] = static_cast<std::int64_t>(value);
    else out[name] = value;
  }
  void operator()(const char* name, const std::string& value) { out[name] = value; }
  template <typename T>
  void operator()(const char* name, const std::optional<T>& value) {
    if (value) (*this)(name, *value);
  }
  template <typename T>
  void operator()(const char* name, const std::vector<T>& values) {
    out[name] = values;
  }
};

// Takes what is there, by name, and notes the names, so that one that does not exist is found.
struct OptionsReader {
  const OrderedJson& in;
  const char* what;  // "an optimizer"
  std::string part;  // of it
  std::vector<std::string> names = {};

  [[noreturn]] void refuse(const char* name, const char* wanted) const {
    throw Error(ErrorCode::kInvalidArgument, str(what, " as text: ", part, ": ", name, " must be ", wanted));
  }
  const OrderedJson* find(const char* name) {
    names.emplace_back(name);
    const auto found = in.find(name);
    return found == in.end() ? nullptr : &*found;
  }
  void operator()(const char* name, double& value) {
    if (const auto* given = find(name)) given->is_number() ? void(value = given->get<double>()) : refuse(name, "a number");
  }
  void operator()(const char* name, bool& value) {
    if (const auto* given = find(name)) given->is_boolean() ? void(value = given->get<bool>()) : refuse(name, "true or false");
  }
  void operator()(const char* name, std::int64_t& value) {
    if (const auto* given = find(name))
      given->is_number_integer() ? void(value = given->get<std::int64_t>()) : refuse(name, "a whole number");
  }
  template <typename T>
  requires std::is_enum_v<T>
  void operator()(const char* name, T& value) {
    auto number = static_cast<std::int64_t>(value);
    (*this)(name, number);
    value = static_cast<T>(number);
  }
  void operator()(const char* name, std::string& value) {
    if (const auto* given = find(name)) given->is_string() ? void(value = given->get<std::string>()) : refuse(name, "a text");
  }
  template <typename T>
  void operator()(const char* name, std::optional<T>& value) {
    value.reset();
    if (in.contains(name)) (*this)(name, value.emplace());
    else names.emplace_back(name);
  }
  template <typename T>
  void operator()(const char* name, std::vector<T>& values) {
    const auto* given = find(name);
    if (given == nullptr) return;
    if (!given->is_array()) refuse(name, "a list of numbers");
    values.clear();
    for (const auto& value : *given) {
      if (!(std::is_integral_v<T> ? value.is_number_integer() : value.is_number())) refuse(name, "a list of numbers");
      values.push_back(value.template get<T>());
    }
  }

  void end() const {
    for (const auto& [name, value] : in.items())
      if (std::ranges::find(names, name) == names.end())
        throw Error(ErrorCode::kInvalidArgument, str(what, " as text: ", unknown_name("of " + part, name, names)));
  }
};

// The member of this name, which must be a structure.
inline const OrderedJson& structure_in(const OrderedJson& all, const char* name, const char* what) {
  const auto found = all.find(name);
  if (found == all.end() || !found->is_object())
    throw Error(ErrorCode::kInvalidArgument, str(what, " as text: there is no \"", name, "\":{...}"));
  return *found;
}

// A text that must be a structure.
inline OrderedJson parse_structure(const std::string& text, const char* what) {
  auto all = parse_json(text, str(what, " as text"));
  if (!all.is_object()) throw Error(ErrorCode::kInvalidArgument, str(what, " as text: it is no JSON structure"));
  return all;
}

inline std::string to_text(const OrderedJson& all) { return all.dump(-1, ' ', false, OrderedJson::error_handler_t::replace); }

// Calls `fn` with the entries of a table until one says true.
template <typename Table, typename F>
bool any_of_table(const Table& table, F fn) {
  return std::apply([&](const auto&... entry) { return (fn(entry) || ...); }, table);
}

}  // namespace lockstep::internal

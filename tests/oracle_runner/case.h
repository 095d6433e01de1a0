#pragma once

#include <functional>
#include <nlohmann/json.hpp>
#include <optional>
#include <stdexcept>
#include <string>
#include <vector>

// What an oracle file is made of, and what the runner needs to know to run it.

namespace lockstep::oracle {

using Json = nlohmann::ordered_json;  // the order of a cluster's jobs counts

// One line of an oracle file.
struct Case {
  std::string file = "";  // without its extension
  std::string name = "";
  Json input = {};
  // What TensorFlow gave: {"expect": ...} or {"error": {"type", "contains"}}.
  Json outcome = {};
  // Our steps where the file gives them beside TensorFlow's (their rule A4, tests/oracle/README.md); else null.
  Json balanced = {};

  // What was asked: the field names of the expectation (null where TensorFlow raised). Only for what the input leaves
  // open, such as the number of rows of an IndexedSlices; never a value to give back.
  const Json& asked() const;
};

// Thrown by a suite for what Lockstep does not have: "needs <operation>", or what C++ refuses at compile time.
class NotApplicable : public std::runtime_error {
 public:
  using std::runtime_error::runtime_error;
};

// The exception of a user's function, unknown to the library: what() is the text that TensorFlow's case shows.
class UserFailure : public std::runtime_error {
 public:
  using std::runtime_error::runtime_error;
};

// A rule of ours (tests/oracle/README.md, 'Where we differ on purpose') that changes what we answer: the outcomes that we
// accept in place of TensorFlow's. An error of ours is {"error": {"code": "kInvalidArgument"}}.
struct Difference {
  std::string reason = "";
  std::vector<Json> outcomes = {};
};

// How the cases of one oracle file are run.
struct Suite {
  std::string file = "";
  // The library's answer in the oracle's notation. Throws what the library throws, or NotApplicable.
  Json (*answer)(const Case&) = nullptr;
  // Whether a rule applies is decided by the input alone. Null: the file has no differences.
  std::optional<Difference> (*difference)(const Case&) = nullptr;
};

enum class Status { kPassed, kFailed, kDiffers, kNotApplicable };

struct Verdict {
  Status status = Status::kPassed;
  std::string reason = "";
};

// Runs one case and judges the answer. Throws nothing that a case can cause.
Verdict judge(const Suite& suite, const Case& one);

// The registered suite of a file ("reduce"); for an unknown file one that says what is missing.
Suite suite_of(const std::string& file);

// What fn gives, or {"error": {...}} in place of one field of an answer.
Json field(const std::function<Json()>& fn);

// input[key], or `otherwise` when it is absent or null.
template <typename T>
T get_or(const Json& input, const char* key, T otherwise) {
  const auto found = input.find(key);
  return found == input.end() || found->is_null() ? otherwise : found->get<T>();
}

}  // namespace lockstep::oracle

#include "tests/oracle_runner/compare.h"

#include <cmath>
#include <limits>
#include <map>

namespace lockstep::oracle {
namespace {

struct Tolerance {
  double relative;
  double absolute;
};

// Integers and text are compared exactly, so they have no entry.
const std::map<std::string, Tolerance> kTolerances = {
    {"float16", {4e-3, 1e-4}}, {"bfloat16", {3e-2, 1e-3}}, {"float32", {1e-5, 1e-7}}, {"float64", {1e-12, 1e-15}}};

bool is_tensor(const Json& value) { return value.is_object() && value.contains("dtype") && value.contains("data"); }

bool is_error(const Json& value) {
  return value.is_object() && (value.contains("contains") || (value.size() == 1 && value.contains("code")));
}

double to_double(const Json& number) {
  if (number.is_number()) return number.get<double>();
  if (number.is_boolean()) return number.get<bool>() ? 1 : 0;
  const auto text = number.get<std::string>();
  if (text == "nan") return std::numeric_limits<double>::quiet_NaN();
  const double infinity = std::numeric_limits<double>::infinity();
  if (text == "inf" || text == "-inf") return text == "inf" ? infinity : -infinity;
  throw std::invalid_argument("not a number: " + text);
}

bool is_close(const Json& expected, const Json& got, Tolerance tolerance) {
  const double a = to_double(expected);
  const double b = to_double(got);
  if (std::isnan(a) || std::isnan(b)) return std::isnan(a) && std::isnan(b);
  if (a == b) return true;
  if (std::isinf(a) || std::isinf(b)) return false;
  return std::abs(a - b) <= tolerance.absolute + tolerance.relative * std::max(std::abs(a), std::abs(b));
}

bool are_tensors_equal(const Json& expected, const Json& got) {
  if (!is_tensor(got) || expected.at("dtype") != got.at("dtype") || expected.at("shape") != got.at("shape")) return false;
  const auto& a = expected.at("data");
  const auto& b = got.at("data");
  const auto found = kTolerances.find(expected.at("dtype").get<std::string>());
  if (found == kTolerances.end()) return a == b;
  if (a.size() != b.size()) return false;
  for (std::size_t i = 0; i < a.size(); ++i)
    if (!is_close(a[i], b[i], found->second)) return false;
  return true;
}

bool are_errors_equal(const Json& expected, const Json& got) {
  if (!got.is_object()) return false;
  if (expected.contains("code")) return got.value("code", std::string()) == expected.at("code").get<std::string>();
  if (got.contains("user")) return got.at("user") == expected.at("contains");
  const auto code = code_of(expected);
  return !code.empty() && got.value("code", std::string()) == code;
}

bool is_leaf(const Json& value) { return is_tensor(value) || is_error(value) || !value.is_structured(); }

bool are_leaves_equal(const Json& expected, const Json& got) {
  if (is_tensor(expected)) return are_tensors_equal(expected, got);
  if (is_error(expected)) return are_errors_equal(expected, got);
  // A number that is not a tensor: C++'s double.
  if (expected.is_number() && got.is_number()) return is_close(expected, got, kTolerances.at("float64"));
  return expected == got;
}

std::string say(const std::string& path, const Json& expected, const Json& got) {
  const auto wanted = expected.is_object() && expected.contains("contains") ? " (" + code_of(expected) + ")" : "";
  return (path.empty() ? "" : path + ": ") + "expected " + shorten(expected) + wanted + ", got " + shorten(got);
}

std::string find_below(const std::string& path, const Json& expected, const Json& got) {
  if (is_leaf(expected)) return are_leaves_equal(expected, got) ? "" : say(path, expected, got);
  if (expected.type() != got.type() || expected.size() != got.size()) return say(path, expected, got);
  for (const auto& [key, value] : expected.items()) {
    const auto index = expected.is_array() ? Json(std::stoul(key)) : Json(key);
    if (expected.is_object() && !got.contains(key)) return say(path, expected, got);
    const auto& other = expected.is_array() ? got.at(index.get<std::size_t>()) : got.at(key);
    const auto mismatch = find_below(path + "/" + key, value, other);
    if (!mismatch.empty()) return mismatch;
  }
  return "";
}

}  // namespace

std::string code_of(const Json& error) {
  static const std::map<std::string, std::string> codes = {{"ValueError", "kInvalidArgument"},
                                                           {"JSONDecodeError", "kInvalidArgument"},
                                                           {"TypeError", "kInvalidArgument"},
                                                           {"AssertionError", "kInvalidArgument"},
                                                           {"KeyError", "kInvalidArgument"},
                                                           {"ZeroDivisionError", "kInvalidArgument"},
                                                           {"InvalidArgumentError", "kInvalidArgument"},
                                                           {"AttributeError", "kInvalidArgument"},
                                                           {"RuntimeError", "kFailedPrecondition"},
                                                           {"FailedPreconditionError", "kFailedPrecondition"},
                                                           {"NotImplementedError", "kUnimplemented"},
                                                           {"UnimplementedError", "kUnimplemented"},
                                                           {"IndexError", "kOutOfRange"},
                                                           {"OutOfRangeError", "kOutOfRange"},
                                                           {"StopIteration", "kOutOfRange"},
                                                           {"UnavailableError", "kUnavailable"},
                                                           {"DeadlineExceededError", "kDeadlineExceeded"},
                                                           {"CancelledError", "kCancelled"},
                                                           {"AbortedError", "kAborted"},
                                                           {"NotFoundError", "kNotFound"},
                                                           {"InternalError", "kInternal"},
                                                           {"DataLossError", "kDataLoss"}};
  const auto type = error.value("type", "");
  const auto text = error.value("contains", "");
  // What Python stumbled over without a check of TensorFlow's. No replica context there is ours to report.
  if (type == "AttributeError" && text.find("NoneType") != std::string::npos) return "kFailedPrecondition";
  if (type == "IndexError" && text.find("list index out of range") != std::string::npos) return "kInvalidArgument";
  const auto found = codes.find(type);
  return found == codes.end() ? "" : found->second;
}

std::string find_mismatch(const Json& expected, const Json& got) { return find_below("", expected, got); }

std::string shorten(const Json& value) {
  constexpr std::size_t kMost = 300;
  auto text = value.dump(-1, ' ', false, Json::error_handler_t::replace);
  if (text.size() > kMost) text = text.substr(0, kMost) + "...";
  return text;
}

}  // namespace lockstep::oracle

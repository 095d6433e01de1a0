#include "lockstep/split/rules.h"

#include <unordered_map>

namespace lockstep::split {
namespace {

// Without "aten::"; with a trailing _ they are written in place.
constexpr const char* kPointwise[] = {
    "abs",         "acos",        "add",         "addcdiv",     "addcmul",      "alias",       "asin",        "atan",
    "atan2",       "bitwise_and", "bitwise_not", "bitwise_or",  "bitwise_xor",  "ceil",        "celu",        "clamp",
    "clamp_max",   "clamp_min",   "clone",       "contiguous",  "cos",          "cosh",        "deg2rad",     "detach",
    "digamma",     "div",         "divide",      "elu",         "eq",           "erf",         "erfc",        "exp",
    "exp2",        "expm1",       "fill",        "floor",       "floor_divide", "fmod",        "frac",        "full_like",
    "ge",          "gelu",        "gt",          "hardshrink",  "hardsigmoid",  "hardswish",   "hardtanh",    "isfinite",
    "isinf",       "isnan",       "ldexp",       "le",          "leaky_relu",   "lerp",        "lgamma",      "log",
    "log10",       "log1p",       "log2",        "log_sigmoid", "logaddexp",    "logical_and", "logical_not", "logical_or",
    "logical_xor", "logit",       "lt",          "masked_fill", "maximum",      "minimum",     "mish",        "mul",
    "multiply",    "nan_to_num",  "ne",          "neg",         "negative",     "ones_like",   "positive",    "pow",
    "reciprocal",  "relu",        "relu6",       "remainder",   "round",        "rsqrt",       "rsub",        "selu",
    "sigmoid",     "sign",        "silu",        "sin",         "sinh",         "softplus",    "softshrink",  "sqrt",
    "square",      "sub",         "subtract",    "tan",         "tanh",         "threshold",   "true_divide", "trunc",
    "where",       "xlogy",       "zero",        "zeros_like"};

constexpr const char* kAlongDimension[] = {"all",    "amax",        "amin",      "any",     "argmax", "argmin", "cumprod",
                                           "cumsum", "log_softmax", "logsumexp", "max",     "min",    "median", "nansum",
                                           "norm",   "prod",        "softmax",   "softmin", "std",    "var"};

std::unordered_map<std::string, Rule> make_rules() {
  std::unordered_map<std::string, Rule> rules = {{"sum", reduce},
                                                 {"mean", reduce},
                                                 {"matmul", multiply},
                                                 {"mm", multiply},
                                                 {"bmm", multiply},
                                                 {"linear", linear},
                                                 {"addmm", add_multiplied},
                                                 {"conv1d", convolve},
                                                 {"conv2d", convolve},
                                                 {"conv3d", convolve},
                                                 {"max_pool1d", pool},
                                                 {"max_pool2d", pool},
                                                 {"max_pool3d", pool},
                                                 {"avg_pool1d", pool},
                                                 {"avg_pool2d", pool},
                                                 {"avg_pool3d", pool},
                                                 {"transpose", permute},
                                                 {"permute", permute},
                                                 {"t", permute},
                                                 {"reshape", reshape},
                                                 {"view", reshape},
                                                 {"flatten", reshape},
                                                 {"batch_norm", batch_norm},
                                                 {"layer_norm", layer_norm},
                                                 {"dropout", same_cuts},
                                                 {"dropout_", same_cuts},
                                                 {"feature_dropout", same_cuts},
                                                 {"alpha_dropout", same_cuts},
                                                 {"rand_like", same_cuts},
                                                 {"randn_like", same_cuts},
                                                 {"bernoulli", same_cuts},
                                                 {"to", convert},
                                                 {"_has_compatible_shallow_copy_type", never_shared}};
  for (const char* name : kPointwise) {
    rules[name] = pointwise;
    rules[std::string(name) + "_"] = pointwise;
  }
  for (const char* name : kAlongDimension) rules[name] = along_dimension;
  return rules;
}

}  // namespace

Rule find_rule(const std::string& name) {
  static const auto& rules = *new std::unordered_map<std::string, Rule>(make_rules());
  constexpr std::string_view space = "aten::";
  if (!name.starts_with(space)) return nullptr;
  const auto found = rules.find(name.substr(space.size()));
  return found == rules.end() ? nullptr : found->second;
}

}  // namespace lockstep::split

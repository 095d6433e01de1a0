#include "lockstep/ps/sharded_variable.h"

#include <ATen/TensorIndexing.h>

#include <map>
#include <sstream>

#include "lockstep/base/error.h"
#include "lockstep/ps/embedding_lookup.h"
#include "tests/oracle_runner/suites.h"
#include "tests/oracle_runner/values.h"

// Variables that are divided over shards.

namespace lockstep::oracle {
namespace {

using at::indexing::TensorIndex;

// The generator's name is "w".
ShardedVariable make_variable(const Json& input) {
  std::vector<Variable> shards;
  for (const auto& shard : input.at("shards")) shards.emplace_back(to_tensor(shard));
  return ShardedVariable(std::move(shards), "w");
}

Json shards_of(const ShardedVariable& variable) {
  Json shards = Json::array();
  for (const auto& shard : variable.variables()) shards.push_back(to_json(shard.value()));
  return shards;
}

Json state_of(const ShardedVariable& variable) {
  return {{"shards", shards_of(variable)}, {"value", to_json(variable.value())}};
}

Json construct(const Case& one) {
  const auto variable = make_variable(one.input);
  auto state = state_of(variable);
  state["shape"] = variable.sizes().vec();
  state["dtype"] = to_json(at::empty({0}, variable.scalar_type())).at("dtype");
  state["name"] = variable.name();
  return state;
}

std::vector<std::string> cut(const std::string& text, char separator) {
  std::vector<std::string> parts(1);
  for (const char letter : text) {
    if (letter == separator) parts.emplace_back();
    else if (letter != ' ') parts.back() += letter;
  }
  return parts;
}

// "1:6:2" and so on, as in Python.
TensorIndex to_index(const std::string& text) {
  if (text == "...") return at::indexing::Ellipsis;
  if (text == "None") return at::indexing::None;
  const auto parts = cut(text, ':');
  if (parts.size() == 1) return static_cast<std::int64_t>(std::stoll(text));
  c10::optional<std::int64_t> numbers[3];
  for (std::size_t k = 0; k < parts.size(); ++k)
    if (!parts[k].empty()) numbers[k] = std::stoll(parts[k]);
  try {
    return at::indexing::Slice(numbers[0], numbers[1], numbers[2]);
  } catch (const c10::ValueError& error) {  // LibTorch itself refuses a step of 0, with Python's class of error
    throw Error(ErrorCode::kInvalidArgument, error.what_without_backtrace());
  }
}

std::vector<TensorIndex> to_indices(const std::string& text) {
  std::vector<TensorIndex> indices;
  for (const auto& part : cut(text, ',')) indices.push_back(to_index(part));
  return indices;
}

// What Python answers must be ours, too.
Json slice(const Case& one) {
  const auto variable = make_variable(one.input);
  const auto value = to_json(variable.index(to_indices(one.input.at("index").get<std::string>())));
  return {{"value", value}, {"numpy", value}};
}

Json mask(const Case& one) {
  return {{"value", to_json(make_variable(one.input).index({to_tensor(one.input.at("mask"), "bool")}))}};
}

Json assign(const Case& one) {
  auto variable = make_variable(one.input);
  const auto api = one.input.at("api").get<std::string>();
  const auto value = to_tensor(one.input.at("value"));
  if (api == "assign") variable.assign(value);
  else if (api == "assign_add") variable.assign_add(value);
  else variable.assign_sub(value);
  return state_of(variable);
}

Json scatter(const Case& one) {
  using Scatter = ShardedVariable& (ShardedVariable::*)(const IndexedSlices&);
  static const std::map<std::string, Scatter> all = {
      {"scatter_add", &ShardedVariable::scatter_add},
      {"scatter_sub", &ShardedVariable::scatter_sub},
      {"scatter_mul", &ShardedVariable::scatter_mul},
      {"scatter_div", &ShardedVariable::scatter_div},
      {"scatter_min", &ShardedVariable::scatter_min},
      {"scatter_max", &ShardedVariable::scatter_max},
      {"scatter_update", &ShardedVariable::scatter_update},
      {"batch_scatter_update", &ShardedVariable::scatter_update},  // for indices of one dimension, the only ones, the same
  };
  auto variable = make_variable(one.input);
  (variable.*all.at(one.input.at("api").get<std::string>()))(
      {to_tensor(one.input.at("updates")), to_tensor(one.input.at("indices"), "int64")});
  return state_of(variable);
}

Json sparse_read(const Case& one) {
  return {{"value", to_json(make_variable(one.input).sparse_read(to_tensor(one.input.at("ids"), "int64")))}};
}

std::optional<double> max_norm_of(const Json& input) {
  const auto found = input.find("max_norm");
  return found == input.end() || found->is_null() ? std::nullopt : std::optional(found->get<double>());
}

Json lookup(const Case& one) {
  const auto ids = to_tensor(one.input.at("ids"), "int64");
  return {{"value", to_json(embedding_lookup(make_variable(one.input), ids, max_norm_of(one.input)))}};
}

Json lookup_sparse(const Case& one) {
  const auto& input = one.input;
  SparseIds sparse{to_tensor(input.at("rows"), "int64"), to_tensor(input.at("ids"), "int64")};
  if (const auto weights = get_or<Json>(input, "weights", nullptr); !weights.is_null()) sparse.weights = to_tensor(weights);
  static const std::map<std::string, Combiner> combiners = {
      {"sum", Combiner::kSum}, {"mean", Combiner::kMean}, {"sqrtn", Combiner::kSqrtn}};
  const auto combiner = combiners.find(get_or<std::string>(input, "combiner", "mean"));
  if (combiner == combiners.end()) throw NotApplicable("an unknown combiner is refused by the compiler");
  return {{"value", to_json(embedding_lookup_sparse(make_variable(input), sparse, combiner->second, max_norm_of(input)))}};
}

Json call_operator(const Case& one) {
  const auto variable = make_variable(one.input);
  const auto name = one.input.at("operator").get<std::string>();
  if (name == "add") return {{"value", to_json(variable + variable)}};
  if (name == "sub") return {{"value", to_json(variable - variable)}};
  if (name == "eq") return {{"value", to_json(variable == variable)}};
  if (name == "mul") return {{"value", to_json(variable * 2)}};
  if (name == "neg") return {{"value", to_json(-variable)}};
  if (name == "reduce_sum") return {{"value", to_json(at::Tensor(variable).sum())}};
  throw NotApplicable("needs ShardedVariable: operator " + name);
}

Json refuse_empty(const Case&) { return construct({.input = {{"shards", Json::array()}}}); }

// A second shard that differs from the first, as the generator's does.
Json refuse_pair(const Case& one, const std::function<at::Tensor(const at::Tensor&)>& change) {
  const auto first = to_tensor(one.input.at("shards").at(0));
  return state_of(ShardedVariable({Variable(first), Variable(change(first))}));
}
Json refuse_dtype(const Case& one) {
  return refuse_pair(one, [](const at::Tensor& first) { return first.to(at::kInt); });
}
Json refuse_shape(const Case& one) {
  return refuse_pair(one, [](const at::Tensor& first) { return at::cat({first, first}, -1); });
}
Json refuse_tensor_index(const Case& one) {
  return {{"value", to_json(make_variable(one.input).index({at::zeros({}, at::kInt)}))}};
}

Json refuse_at_compile_time(const Case& one) {
  throw NotApplicable(one.input.at("api").get<std::string>() + " is refused by the compiler");
}

}  // namespace

Json answer_sharded_variable(const Case& one) {
  static const std::map<std::string, Json (*)(const Case&)> apis = {{"construct", construct},
                                                                    {"slice", slice},
                                                                    {"mask", mask},
                                                                    {"assign", assign},
                                                                    {"assign_add", assign},
                                                                    {"assign_sub", assign},
                                                                    {"scatter_add", scatter},
                                                                    {"scatter_sub", scatter},
                                                                    {"scatter_mul", scatter},
                                                                    {"scatter_div", scatter},
                                                                    {"scatter_min", scatter},
                                                                    {"scatter_max", scatter},
                                                                    {"scatter_update", scatter},
                                                                    {"batch_scatter_update", scatter},
                                                                    {"sparse_read", sparse_read},
                                                                    {"embedding_lookup", lookup},
                                                                    {"embedding_lookup_sparse", lookup_sparse},
                                                                    {"operator", call_operator},
                                                                    {"empty", refuse_empty},
                                                                    {"dtype", refuse_dtype},
                                                                    {"shape", refuse_shape},
                                                                    {"tensor_index", refuse_tensor_index},
                                                                    {"tensor_slice", refuse_at_compile_time},
                                                                    {"not_a_list", refuse_at_compile_time},
                                                                    {"not_variables", refuse_at_compile_time}};
  return call_api(apis, one);
}

std::optional<Difference> difference_in_sharded_variable(const Case& one) {
  if (one.input.at("api") != "slice" || !one.asked().contains("numpy")) return std::nullopt;
  const auto first = cut(one.input.at("index").get<std::string>(), ',')[0];
  if (first.find(':') == std::string::npos) return std::nullopt;
  // TensorFlow's begins at another row when it goes back from beyond the end, and has too many dimensions without any rows.
  const auto& numpy = one.asked().at("numpy");
  return Difference{"a slice gives the rows that numpy gives (A8)", {{{"expect", {{"value", numpy}, {"numpy", numpy}}}}}};
}

}  // namespace lockstep::oracle

#include <atomic>
#include <cstdio>
#include <map>
#include <sstream>

#include "tests/oracle_runner/strategies.h"
#include "tests/oracle_runner/suites.h"
#include "tests/oracle_runner/values.h"

// Variables under a strategy: what they are made of, and what reads and writes do in each context.

namespace lockstep::oracle {
namespace {

MirroredStrategy& strategy_of(const Json& input) { return mirrored(get_or(input, "replicas", 2)); }

VariableOptions options_of(const Json& input) {
  VariableOptions options;
  options.name = get_or<std::string>(input, "name", "");
  options.synchronization = to_synchronization(get_or<std::string>(input, "synchronization", "AUTO"));
  options.aggregation = to_aggregation(get_or<std::string>(input, "aggregation", "NONE"));
  if (const auto trainable = get_or<Json>(input, "trainable", nullptr); !trainable.is_null())
    options.trainable = trainable.get<bool>();
  return options;
}

// The variable that `input` describes, made in its strategy's scope.
Variable make_variable(const Json& input, const Json& otherwise = 1.0) {
  const auto scope = strategy_of(input).scope();
  return Variable(to_tensor(get_or(input, "initial", otherwise)), options_of(input));
}

Json state_of(Strategy& strategy, const Variable& variable) {
  return {{"components", list_to_json(variable.components())},
          {"read_cross", field([&] { return to_json(variable.read_value()); })},
          {"read_replica", field([&] { return to_json(strategy.run([&] { return variable.read_value(); })); })}};
}

template <typename T>
void write(const std::string& api, Variable variable, const T& value) {
  if (api == "assign") variable.assign(value);
  else if (api == "assign_add") variable.assign_add(value);
  else variable.assign_sub(value);
}

Json assign(const Case& one) {
  auto& strategy = strategy_of(one.input);
  const auto api = one.input.at("api").get<std::string>();
  const auto context = get_or<std::string>(one.input, "context", "cross");
  const auto variable = make_variable(one.input);
  if (context == "cross") {
    const auto scope = strategy.scope();
    write(api, variable, to_tensor(one.input.at("value")));
  } else if (context == "literal") {
    const auto number = to_tensor(one.input.at("value")).item<double>();
    strategy.run([&] { write(api, variable, number); });
  } else {
    const PerReplica<at::Tensor> values(to_tensors(one.input.at("values")));
    strategy.run([&](const at::Tensor& value) { write(api, variable, value); }, values);
  }
  return state_of(strategy, variable);
}

Json assign_add_twice(const Case& one) {
  auto& strategy = strategy_of(one.input);
  const auto variable = make_variable(one.input);
  const PerReplica<at::Tensor> values(to_tensors(one.input.at("values")));
  for (int time = 0; time < 2; ++time)
    strategy.run([&](const at::Tensor& value) { write("assign_add", variable, value); }, values);
  return state_of(strategy, variable);
}

Json assign_variable(const Case& one) {
  auto& strategy = strategy_of(one.input);
  const auto from = make_variable(one.input, one.input.at("from"));
  auto to = make_variable(one.input, one.input.at("to"));
  to.assign(from);
  return state_of(strategy, to);
}

Json extended_update(const Case& one) {
  auto& strategy = strategy_of(one.input);
  auto variable = make_variable(one.input);
  const PerReplica<at::Tensor> values(to_tensors(one.input.at("values")));
  strategy.extended().update(
      variable, [&](at::Tensor&, const at::Tensor& value) { variable.assign(value); }, values);
  return state_of(strategy, variable);
}

using Scatter = Variable& (Variable::*)(const IndexedSlices&);

Scatter scatter_of(const std::string& api) {
  static const std::map<std::string, Scatter> all = {
      {"scatter_add", &Variable::scatter_add},      {"scatter_sub", &Variable::scatter_sub},
      {"scatter_mul", &Variable::scatter_mul},      {"scatter_div", &Variable::scatter_div},
      {"scatter_min", &Variable::scatter_min},      {"scatter_max", &Variable::scatter_max},
      {"scatter_update", &Variable::scatter_update}};
  return all.at(api);
}

Json scatter(const Case& one) {
  auto& strategy = strategy_of(one.input);
  const auto scatter = scatter_of(one.input.at("api").get<std::string>());
  auto variable = make_variable(one.input, {1.0, 2.0});
  const bool is_given = one.input.contains("indices");  // variables that refuse every scatter have none
  const auto indices = get_or<Json>(one.input, "indices", {0});
  const auto updates = to_tensor(get_or<Json>(one.input, "updates", {1.0}));
  if (get_or<std::string>(one.input, "context", "cross") == "cross") {
    const auto scope = strategy.scope();
    (variable.*scatter)({updates, to_tensor(indices)});
  } else {
    strategy.run([&](ReplicaContext& context) {
      const auto replica = context.replica_id_in_sync_group();
      const auto& rows = is_given ? indices.at(static_cast<std::size_t>(replica)) : indices;
      (Variable(variable).*scatter)({is_given ? updates[replica] : updates, to_tensor(rows)});
    });
  }
  return {{"components", list_to_json(variable.components())}};
}

Json create(const Case& one) { return {{"components", list_to_json(make_variable(one.input).components())}}; }

Json trainable(const Case& one) { return {{"trainable", make_variable(one.input).trainable()}}; }

template <typename T>
std::string print(const T& value) {
  std::ostringstream text;
  text << value;
  return text.str();
}

Json describe(const Case& one) {
  const auto variable = make_variable(one.input);
  const auto printed = print(variable);
  std::vector<std::string> names = variable.component_names();
  for (auto& name : names) name += ":0";  // TensorFlow's number of the operation's output, which we do not have
  return {{"class", printed.substr(0, printed.find(':'))},
          {"components", list_to_json(variable.components())},
          {"component_names", names},
          {"name", variable.name() + ":0"},
          {"devices", variable.devices()},
          {"trainable", variable.trainable()},
          {"synchronization", print(variable.synchronization())},
          {"aggregation", print(variable.aggregation())}};
}

Json create_in_run(const Case& one) {
  const auto note = one.input.at("note").get<std::string>();
  double factor = 0;
  double offset = 0;
  if (std::sscanf(note.c_str(), "initial value %lf * replica id + %lf", &factor, &offset) != 2)
    throw std::invalid_argument("the note of the case is not understood: " + note);
  const auto made = strategy_of(one.input).run([&](ReplicaContext& context) {
    return Variable(factor * context.replica_id_in_sync_group() + offset, options_of(one.input));
  });
  const auto reads = strategy_of(one.input).run([](const Variable& variable) { return variable.read_value(); }, made);
  return {{"replicas", to_json(reads)}, {"components", list_to_json(made[0].components())}};
}

Json create_in_run_names_differ(const Case& one) {
  const auto names = one.input.at("names").get<std::vector<std::string>>();
  strategy_of(one.input).run([&](ReplicaContext& context) {
    Variable(1.0, {.name = names.at(static_cast<std::size_t>(context.replica_id_in_sync_group()))});
  });
  return "ok";
}

// The generator's initializer gives 7.
Json initializer_calls(const Case& one) {
  std::atomic<int> calls = 0;
  const auto scope = strategy_of(one.input).scope();
  const Variable variable([&] {
    ++calls;
    return at::scalar_tensor(7.0, at::kFloat);
  });
  return {{"components", list_to_json(variable.components())}, {"initializer_calls", calls.load()}};
}

// A variable with these components, however unequal.
Variable make_with_components(const Json& input) {
  const auto variable = make_variable(input);
  const at::NoGradGuard no_grad;
  const auto values = to_tensors(input.at("components"));
  for (std::size_t i = 0; i < values.size(); ++i) at::Tensor(variable.components().at(i)).copy_(values[i]);
  return variable;
}

Json save(const Case& one) { return {{"saved", to_json(make_with_components(one.input).saved_value())}}; }

Json restore(const Case& one) {
  const auto& into = one.input.at("into");
  const auto saved = make_with_components(one.input).saved_value();
  auto variable = make_variable(into);
  variable.restore(saved);
  return state_of(strategy_of(into), variable);
}

Json operator_add(const Case& one) {
  const auto variable = make_variable(one.input);
  const auto& other = one.input.at("other");
  const auto value = other == "self" ? variable.value() + variable.value() : variable.value() + other.get<double>();
  return {{"value", to_json(value)}, {"less_than_5", (variable.value() < 5).item<bool>()}};
}

Json plain_variable_assign_add(const Case& one) {
  Variable variable(to_tensor(one.input.at("initial")));
  const PerReplica<at::Tensor> values(to_tensors(one.input.at("values")));
  strategy_of(one.input).run([&](const at::Tensor& value) { write("assign_add", variable, value); }, values);
  return {{"value", to_json(variable.read_value())}};
}

Json variable_created_in_scope(const Case& one) {
  const auto variable = make_variable(one.input);
  auto& other = mirrored(one.input.at("other").get<int>());
  return {{"here", strategy_of(one.input).extended().variable_created_in_scope(variable)},
          {"other", other.extended().variable_created_in_scope(variable)}};
}

// The generator's variable is 1, and is set to 2 under the other strategy.
Json read_under_other(const Case& one) {
  auto variable = make_variable(one.input);
  const auto scope = mirrored(one.input.at("other").get<int>()).scope();
  const auto value = variable.read_value();
  return {{"value", to_json(value)}, {"assign", to_json(variable.assign(at::scalar_tensor(2.0, at::kFloat)).read_value())}};
}

}  // namespace

Json answer_variables(const Case& one) {
  static const std::map<std::string, Json (*)(const Case&)> apis = {{"assign", assign},
                                                                    {"assign_add", assign},
                                                                    {"assign_sub", assign},
                                                                    {"assign_add_twice", assign_add_twice},
                                                                    {"assign_variable", assign_variable},
                                                                    {"extended_update", extended_update},
                                                                    {"scatter_add", scatter},
                                                                    {"scatter_sub", scatter},
                                                                    {"scatter_mul", scatter},
                                                                    {"scatter_div", scatter},
                                                                    {"scatter_min", scatter},
                                                                    {"scatter_max", scatter},
                                                                    {"scatter_update", scatter},
                                                                    {"create", create},
                                                                    {"trainable", trainable},
                                                                    {"describe", describe},
                                                                    {"create_in_run", create_in_run},
                                                                    {"create_in_run_names_differ", create_in_run_names_differ},
                                                                    {"initializer_calls", initializer_calls},
                                                                    {"save", save},
                                                                    {"restore", restore},
                                                                    {"operator_add", operator_add},
                                                                    {"plain_variable_assign_add", plain_variable_assign_add},
                                                                    {"variable_created_in_scope", variable_created_in_scope},
                                                                    {"read_under_other", read_under_other}};
  return call_api(apis, one);
}

std::optional<Difference> difference_in_variables(const Case& one) {
  if (one.input.at("api") == "plain_variable_assign_add")
    return Difference{"a variable made outside scope() has one copy, which all replicas would change at once (A3)",
                      {{{"error", {{"code", "kFailedPrecondition"}}}}}};
  return std::nullopt;
}

}  // namespace lockstep::oracle

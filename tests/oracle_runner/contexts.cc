#include <algorithm>
#include <cstdio>
#include <map>
#include <sstream>

#include "lockstep/device/device_spec.h"
#include "lockstep/device/devices.h"
#include "lockstep/strategy/default_strategy.h"
#include "tests/oracle_runner/context_calls.h"
#include "tests/oracle_runner/suites.h"
#include "tests/oracle_runner/values.h"

// Which strategy and which context is current at each place of a program, and what is refused there.

namespace lockstep::oracle {
namespace {

// Calls fn at a place of a program. In replicas and components: a list of what each call gave.
using Place = Json (*)(Setup& setup, const Call& fn);

Json in_scope(Setup& setup, const Call& fn) {
  const auto scope = setup.strategy.scope();
  return fn(setup);
}

Json in_nested_scope(Setup& setup, const Call& fn) {
  const auto outer = setup.strategy.scope();
  const auto inner = setup.strategy.scope();
  return fn(setup);
}

Json in_other_scope(Setup& setup, const Call& fn) {
  const auto scope = setup.other.scope();
  return fn(setup);
}

Json in_default_scope(Setup& setup, const Call& fn) {
  const auto scope = default_strategy().scope();
  return fn(setup);
}

Json after_scope(Setup& setup, const Call& fn) {
  { const auto scope = setup.strategy.scope(); }
  return fn(setup);
}

Json in_run(Setup& setup, const Call& fn) {
  return to_json(setup.strategy.run([&] { return fn(setup); }));
}

Json in_run_in_scope(Setup& setup, const Call& fn) {
  const auto scope = setup.strategy.scope();
  return in_run(setup, fn);
}

Json in_merge_call(Setup& setup, const Call& fn) {
  return to_json(
      setup.strategy.run([&](ReplicaContext& context) { return context.merge_call([&](Strategy&) { return fn(setup); }); }));
}

Json in_update(Setup& setup, const Call& fn) {
  return to_json(setup.strategy.extended().update(setup.variable, [&](at::Tensor&) { return fn(setup); }));
}

struct PlaceEntry {
  Place call;
  const char* facts_field;  // where a case without a call finds the facts; empty: they are the answer
};

const std::map<std::string, PlaceEntry> kPlaces = {
    {"top_level", {[](Setup& setup, const Call& fn) { return fn(setup); }, ""}},
    {"scope", {in_scope, ""}},
    {"scope_in_scope", {in_nested_scope, ""}},
    {"after_scope", {after_scope, ""}},
    {"default_scope", {in_default_scope, ""}},
    {"other_scope", {in_other_scope, ""}},
    {"run", {in_run, "replicas"}},
    {"run_in_scope", {in_run_in_scope, "replicas"}},
    {"merge_call", {in_merge_call, "replicas"}},
    {"update", {in_update, "components"}},
};

[[noreturn]] void fail_in(int replica) { throw UserFailure("'replica " + std::to_string(replica) + " failed'"); }

// Every replica that `raises` says raises; the caller must see that very exception.
Json run_raising(int replicas, const std::function<void(ReplicaContext&)>& body) {
  try {
    mirrored(replicas).run([&](ReplicaContext& context) { body(context); });
  } catch (const Error& error) {
    throw std::logic_error(std::string("the user's exception did not reach the caller, but: ") + error.what());
  }
  return "ok";
}

// "replica 1 raises, replica 0 in merge_call" and the like, which have no other parameters.
std::optional<Json> story(const std::string& where) {
  constexpr int kReplicas = 2;
  int first = 0;
  int second = 0;
  if (std::sscanf(where.c_str(), "only replica %d calls merge_call", &first) == 1) {
    mirrored(kReplicas).run([&](ReplicaContext& context) {
      if (context.replica_id_in_sync_group() == first) context.merge_call([](Strategy&) {});
    });
    return "ok";
  }
  if (std::sscanf(where.c_str(), "replica %d raises, replica %d in merge_call", &first, &second) != 2) return std::nullopt;
  return run_raising(kReplicas, [&](ReplicaContext& context) {
    const int replica = context.replica_id_in_sync_group();
    if (replica == first) fail_in(replica);
    if (replica == second) context.merge_call([](Strategy&) {});
  });
}

Json raise_in(const Json& input) {
  const auto raising = input.at("raising").get<std::vector<int>>();
  return run_raising(input.at("replicas").get<int>(), [&](ReplicaContext& context) {
    const int replica = context.replica_id_in_sync_group();
    if (std::ranges::count(raising, replica) > 0) fail_in(replica);
  });
}

// What merge_call gives back to each replica: plain results to all, distributed ones by component.
Json merge_call_results(int replicas) {
  using Values = PerReplica<at::Tensor>;
  const auto merge = [](Strategy& strategy, const Values& mine, const PerReplica<std::string>& k) {
    return std::make_tuple(strategy.reduce("SUM", mine), mine, strategy.num_replicas_in_sync(), k);
  };
  const auto results = mirrored(replicas).run([&](ReplicaContext& context) -> Json {
    const auto mine = at::scalar_tensor(context.replica_id_in_sync_group() + 1, at::kInt);
    const auto [same, own, count, k] = context.merge_call(merge, mine, std::string("word"));
    return {{"same", to_json(same)}, {"mine", to_json(own)}, {"count", count}, {"k", k}};
  });
  return {{"replicas", to_json(results)}};
}

// One result for each replica of a run() that returns (shared tensor, own tensor, None, 'text', [own tensor], {'d': 3}).
Json run_results(int replicas) {
  const auto shared = at::scalar_tensor(1, at::kFloat);
  const auto results = mirrored(replicas).run([&](ReplicaContext& context) {
    const auto own = at::scalar_tensor(context.replica_id_in_sync_group(), at::kFloat);
    return std::make_tuple(shared, own, nullptr, std::string("text"), std::vector{own}, std::map<std::string, int>{{"d", 3}});
  });
  Json list = Json::array();
  for (const auto& [all, own, none, text, vector, map] : results)
    list.push_back({to_json(all), to_json(own), none, text, list_to_json(vector), map});
  return {{"results", std::move(list)}};
}

Json expected_run_results(int replicas) {
  Json list = Json::array();
  for (int replica = 0; replica < replicas; ++replica) {
    const auto own = to_json(at::scalar_tensor(replica, at::kFloat));
    list.push_back({to_json(at::scalar_tensor(1, at::kFloat)), own, nullptr, "text", {own}, {{"d", 3}}});
  }
  return {{"results", std::move(list)}};
}

Json construct(const Json& input) {
  if (input.at("devices").empty() && !list_physical_devices("GPU").empty())
    throw NotApplicable("the oracle's machine had no GPU, this one has: the default devices differ");
  struct Configured {
    explicit Configured(int count) { set_logical_device_configuration("CPU:0", count); }
    ~Configured() { reset_logical_device_configuration(); }
  };
  const Configured configured(input.at("logical_cpus").get<int>());
  MirroredStrategy strategy(input.at("devices").get<std::vector<std::string>>());
  return {{"num_replicas_in_sync", strategy.num_replicas_in_sync()}, {"worker_devices", strategy.extended().worker_devices()}};
}

Json print_per_replica(const Json& values) {
  std::ostringstream text;
  if (std::ranges::all_of(values, [](const Json& value) { return value.is_number_integer(); }))
    text << PerReplica(values.get<std::vector<std::int64_t>>());
  else text << PerReplica(values.get<std::vector<double>>());
  return {{"text", text.str()}};
}

Json at_place(const Case& one, const std::string& where) {
  const auto place = kPlaces.find(where);
  if (place == kPlaces.end()) throw NotApplicable("needs the place '" + where + "'");
  Setup setup(get_or(one.input, "replicas", 2));
  const auto name = get_or<std::string>(one.input, "call", "");
  if (where == "merge_call" && name == "run") {  // its PerReplica is handed out by component
    return {{"result", to_json(setup.strategy.run([](ReplicaContext& context) {
               return context.merge_call([](Strategy& strategy) { return run_facts(strategy); });
             }))}};
  }
  if (!name.empty()) return {{"result", place->second.call(setup, find_call(name))}};
  const auto found = place->second.call(setup, [](Setup&) { return facts(); });
  const std::string field = place->second.facts_field;
  return field.empty() ? found : Json{{field, found}};
}

// The collapsed result of a run() as replica r had it.
Json component_of(const Json& value, std::size_t replica) {
  if (value.is_object() && value.size() == 1 && value.contains("per_replica")) return value["per_replica"].at(replica);
  Json selected = value;
  if (value.is_structured())
    for (auto& item : selected) item = component_of(item, replica);
  return selected;
}

bool names_missing_device(const Json& input) {
  const auto is_missing = [&](const Json& name) {
    const auto spec = DeviceSpec::parse(canonicalize(name.get<std::string>()));
    const auto count = *spec.device_type == "CPU" ? input.at("logical_cpus").get<std::int64_t>()
                                                  : static_cast<std::int64_t>(list_physical_devices(*spec.device_type).size());
    return *spec.device_index < 0 || *spec.device_index >= count;
  };
  return std::ranges::any_of(input.at("devices"), is_missing);
}

}  // namespace

Json answer_contexts(const Case& one) {
  const auto call = get_or<std::string>(one.input, "call", "");
  const auto where = get_or<std::string>(one.input, "where", "");
  if (call == "MirroredStrategy") return construct(one.input);
  if (call == "str") return print_per_replica(one.input.at("values"));
  if (where == "default_strategy") return {{"result", call_default_strategy(call, one.input.at("value"))}};
  if (one.input.contains("raising")) return raise_in(one.input);
  if (one.input.contains("returned")) return run_results(one.input.at("replicas").get<int>());
  if (const auto told = story(where)) return *told;
  // Two programs have the same input; the fields that are asked for tell them apart.
  if (where == "merge_call" && call.empty() && one.asked().contains("/replicas/0/mine"_json_pointer))
    return merge_call_results(one.input.at("replicas").get<int>());
  return at_place(one, where);
}

std::optional<Difference> difference_in_contexts(const Case& one) {
  const auto call = get_or<std::string>(one.input, "call", "");
  const auto where = get_or<std::string>(one.input, "where", "");
  const int replicas = get_or(one.input, "replicas", 1);
  const bool is_answered = one.outcome.contains("expect");
  if (call == "MirroredStrategy" && is_answered && names_missing_device(one.input))
    return Difference{"A8: a device that does not exist is a mistake", {{{"error", {{"code", "kInvalidArgument"}}}}}};
  if (one.input.contains("returned"))
    return Difference{"A2: run() gives one result per replica", {{{"expect", expected_run_results(replicas)}}}};
  const bool gives_per_replica = call == "run" || call == "run_facts" || call == "values_from_function";
  const bool is_default_run = where == "default_strategy" && gives_per_replica;
  const bool is_run = call == "run" && (where == "top_level" || where.find("scope") != std::string::npos);
  if ((is_run || is_default_run) && is_answered) {
    Json results = Json::array();
    for (int r = 0; r < replicas; ++r) results.push_back(component_of(one.asked().at("result"), static_cast<std::size_t>(r)));
    return Difference{"A2: run() gives one result per replica", {{{"expect", {{"result", std::move(results)}}}}}};
  }
  if (!one.input.contains("raising") || one.input["raising"].size() < 2) return std::nullopt;
  Difference any{"A3: replicas run at once, any of their errors may be the one reported", {}};
  for (const auto& replica : one.input["raising"])
    any.outcomes.push_back(
        {{"error", {{"type", "KeyError"}, {"contains", "'replica " + std::to_string(replica.get<int>()) + " failed'"}}}});
  return any;
}

}  // namespace lockstep::oracle

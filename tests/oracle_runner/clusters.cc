#include "lockstep/cluster/json.h"
#include "lockstep/cluster/roles.h"
#include "lockstep/cluster/simple_cluster_resolver.h"
#include "lockstep/cluster/tf_config_cluster_resolver.h"
#include "lockstep/cluster/union_cluster_resolver.h"
#include "lockstep/device/devices.h"
#include "tests/oracle_runner/suites.h"

// Cluster specs, resolvers and roles of the suite tf_config.

namespace lockstep::oracle {
namespace {

template <typename T>
Json or_null(const std::optional<T>& value) {
  return value ? Json(*value) : Json(nullptr);
}

std::optional<std::string> text_at(const Json& input, const char* key) {
  return input.contains(key) && !input.at(key).is_null() ? std::optional(input.at(key).get<std::string>()) : std::nullopt;
}

// A number, or a text of one where Python would convert it.
std::optional<std::int64_t> number_at(const Json& input, const char* key) {
  if (!input.contains(key) || input.at(key).is_null()) return std::nullopt;
  return input.at(key).is_string() ? std::stoll(input.at(key).get<std::string>()) : input.at(key).get<std::int64_t>();
}

ClusterSpec spec_at(const Json& input, const char* key = "spec") { return ClusterSpec::from_json(input.at(key).dump()); }

Json dictionary(const ClusterSpec& spec) { return Json::parse(spec.to_json()); }

Environment tf_config_of(const Json& input) {
  const auto text = text_at(input, "TF_CONFIG");
  return text ? Environment::of({{"TF_CONFIG", *text}}) : Environment::of({});
}

// Without this machine's GPUs: the peer's machine had none.
Json accelerators_of(const ClusterResolver& resolver) {
  auto counts = resolver.num_accelerators();
  const auto gpus = static_cast<int>(list_physical_devices("GPU").size());
  if (gpus > 0 && counts.at("GPU") == gpus) counts.erase("GPU");
  return Json(counts);
}

Json tf_config_resolver(const Case& one) {
  const auto& arguments = one.input.at("arguments");
  const TFConfigClusterResolver resolver({.task_type = text_at(arguments, "task_type"),
                                          .task_id = number_at(arguments, "task_id"),
                                          .rpc_layer = text_at(arguments, "rpc_layer"),
                                          .environment = text_at(arguments, "environment"),
                                          .variables = tf_config_of(one.input)});
  return {{"cluster_spec", field([&] { return dictionary(resolver.cluster_spec()); })},
          {"task_type", field([&] { return or_null(resolver.task_type()); })},
          {"task_id", field([&] { return or_null(resolver.task_id()); })},
          {"rpc_layer", field([&] { return or_null(resolver.rpc_layer()); })},
          {"environment", or_null(resolver.environment())},
          {"master", field([&] { return Json(resolver.master()); })},
          {"num_accelerators", field([&] { return accelerators_of(resolver); })}};
}

Json master(const Case& one) {
  const TFConfigClusterResolver resolver({.variables = tf_config_of(one.input)});
  const auto type = text_at(one.input, "task_type");
  const auto id = number_at(one.input, "task_id");
  return {{"master", resolver.master(type, id)}, {"with_rpc", resolver.master(type, id, "grpc")}};
}

Json roles(const Case& one) {
  const auto spec = spec_at(one.input, "cluster_spec");
  const auto type = text_at(one.input, "task_type");
  const auto id = number_at(one.input, "task_id");
  return {{"is_chief", field([&] { return Json(is_chief(spec, type, id)); })},
          {"collective_leader", field([&] { return Json(collective_leader(spec, type, id)); })},
          {"id_in_cluster", field([&] { return Json(id_in_cluster(spec, type, id)); })},
          {"worker_count", field([&] { return Json(worker_count(spec, type)); })},
          {"task_count", field([&] { return Json(task_count(spec, type)); })},
          {"validate", field([&] {
             validate_cluster_spec(spec, type, id);
             return Json(nullptr);
           })},
          {"coordination_leader", field([&] { return Json(coordination_leader(spec)); })}};
}

Json cluster_spec(const Case& one) {
  const auto spec = spec_at(one.input);
  Json counts = Json::object(), indices = Json::object(), tasks = Json::object();
  for (const auto& job : spec.jobs()) {
    counts[job] = spec.num_tasks(job);
    indices[job] = spec.task_indices(job);
    tasks[job] = Json::array();
    for (const auto& address : spec.job_tasks(job)) tasks[job].push_back(or_null(address));
  }
  return {{"as_dict", dictionary(spec)}, {"jobs", spec.jobs()},     {"truthy", !spec.empty()},
          {"num_tasks", counts},         {"task_indices", indices}, {"job_tasks", tasks}};
}

Json task_address(const Case& one) {
  return {{"address", spec_at(one.input).task_address(one.input.at("job"), one.input.at("index").get<std::int64_t>())}};
}

Json num_tasks(const Case& one) { return {{"num_tasks", spec_at(one.input).num_tasks(one.input.at("job"))}}; }
Json task_indices(const Case& one) { return {{"task_indices", spec_at(one.input).task_indices(one.input.at("job"))}}; }

Json job_tasks(const Case& one) {
  Json tasks = Json::array();
  for (const auto& address : spec_at(one.input).job_tasks(one.input.at("job"))) tasks.push_back(or_null(address));
  return {{"job_tasks", tasks}};
}

Json equal(const Case& one) { return {{"equal", spec_at(one.input) == spec_at(one.input, "other")}}; }

Json simple_resolver(const Case& one) {
  const auto& arguments = one.input.at("arguments");
  const SimpleClusterResolver resolver(spec_at(one.input),
                                       {.master = get_or<std::string>(arguments, "master", ""),
                                        .task_type = text_at(arguments, "task_type"),
                                        .task_id = number_at(arguments, "task_id"),
                                        .environment = get_or<std::string>(arguments, "environment", ""),
                                        .num_accelerators = get_or(arguments, "num_accelerators", std::map<std::string, int>{}),
                                        .rpc_layer = text_at(arguments, "rpc_layer")});
  return {{"master", resolver.master()},
          {"master_worker_0", resolver.master("worker", 0)},
          {"master_worker_0_rpc", resolver.master("worker", 0, "http")},
          {"task_type", or_null(resolver.task_type())},
          {"task_id", or_null(resolver.task_id())},
          {"rpc_layer", or_null(resolver.rpc_layer())},
          {"environment", or_null(resolver.environment())},
          {"num_accelerators", Json(resolver.num_accelerators())}};
}

Json union_resolver(const Case& one) {
  std::vector<std::shared_ptr<const ClusterResolver>> resolvers;
  for (const auto& spec : one.input.at("specs"))
    resolvers.push_back(std::make_shared<SimpleClusterResolver>(ClusterSpec::from_json(spec.dump())));
  return {{"cluster_spec", dictionary(UnionResolver(std::move(resolvers)).cluster_spec())}};
}

}  // namespace

const std::map<std::string, Json (*)(const Case&)>& cluster_apis() {
  static const std::map<std::string, Json (*)(const Case&)> apis = {{"TFConfigClusterResolver", tf_config_resolver},
                                                                    {"master", master},
                                                                    {"multi_worker_util", roles},
                                                                    {"ClusterSpec", cluster_spec},
                                                                    {"task_address", task_address},
                                                                    {"num_tasks", num_tasks},
                                                                    {"task_indices", task_indices},
                                                                    {"job_tasks", job_tasks},
                                                                    {"equal", equal},
                                                                    {"SimpleClusterResolver", simple_resolver},
                                                                    {"UnionResolver", union_resolver}};
  return apis;
}

}  // namespace lockstep::oracle

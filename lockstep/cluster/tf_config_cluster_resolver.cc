#include "lockstep/cluster/tf_config_cluster_resolver.h"

#include <cmath>

#include "lockstep/base/error.h"
#include "lockstep/base/number.h"
#include "lockstep/base/str.h"
#include "lockstep/cluster/json.h"

namespace lockstep {
namespace {

using internal::OrderedJson;

// config[key]; null when there is none. Lists and texts have no keys; numbers are no configuration at all.
const OrderedJson* find(const OrderedJson& config, const char* key, const char* what) {
  if (config.is_object()) {
    const auto found = config.find(key);
    return found == config.end() ? nullptr : &*found;
  }
  const bool names_it = (config.is_array() && std::ranges::count(config, OrderedJson(key)) > 0) ||
                        (config.is_string() && config.get<std::string>().find(key) != std::string::npos);
  if ((config.is_array() || config.is_string()) && !names_it) return nullptr;
  throw Error(ErrorCode::kInvalidArgument,
              str(what, " is ", config.dump().substr(0, 60), "; it must be a JSON object with the key '", key, "'"));
}

// config["task"][key]; null when there is none.
const OrderedJson* find_in_task(const OrderedJson& config, const char* key) {
  const auto* task = find(config, "task", "TF_CONFIG");
  return task == nullptr ? nullptr : find(*task, key, "TF_CONFIG's task");
}

// A text as it is, anything else as it is written.
std::string as_text(const OrderedJson& value) { return value.is_string() ? value.get<std::string>() : value.dump(); }

OrderedJson load(const Environment& variables) {
  const auto text = variables.get("TF_CONFIG");
  return text ? internal::parse_json(*text, "TF_CONFIG") : OrderedJson::object();
}

// A number, or a text of one.
std::int64_t to_index(const OrderedJson& value) {
  if (value.is_number_integer()) return value.get<std::int64_t>();
  if (value.is_number_float() && std::isfinite(value.get<double>()) && std::abs(value.get<double>()) < 1e15)
    return static_cast<std::int64_t>(value.get<double>());
  if (value.is_boolean()) return value.get<bool>() ? 1 : 0;
  if (value.is_string()) {
    auto text = value.get<std::string>();
    text.erase(0, text.find_first_not_of(" \t\n\r"));
    text.erase(text.find_last_not_of(" \t\n\r") + 1);
    if (const auto index = whole_number(text.substr(text.starts_with('+') ? 1 : 0))) return *index;
  }
  throw Error(ErrorCode::kInvalidArgument,
              str("TF_CONFIG: the task's index is ", value.dump(), "; it must be a number, from 0"));
}

}  // namespace

TFConfigClusterResolver::TFConfigClusterResolver(const TFConfigOptions& options) : variables_(options.variables) {
  task_type_ = options.task_type;
  task_id_ = options.task_id;
  rpc_layer_ = options.rpc_layer;
  environment_ = options.environment;
}

ClusterSpec TFConfigClusterResolver::cluster_spec() const {
  const auto config = load(variables_);
  const auto* cluster = find(config, "cluster", "TF_CONFIG");
  return cluster == nullptr ? ClusterSpec() : internal::cluster_spec_from(*cluster);
}

std::optional<std::string> TFConfigClusterResolver::task_type() const {
  if (task_type_) return task_type_;
  const auto config = load(variables_);
  const auto* type = find_in_task(config, "type");
  if (type == nullptr) return std::nullopt;
  return as_text(*type);
}

std::optional<std::int64_t> TFConfigClusterResolver::task_id() const {
  if (task_id_) return task_id_;
  const auto config = load(variables_);
  const auto* index = find_in_task(config, "index");
  if (index == nullptr) return std::nullopt;
  return to_index(*index);
}

std::optional<std::string> TFConfigClusterResolver::rpc_layer() const {
  if (rpc_layer_) return rpc_layer_;
  const auto config = load(variables_);
  const auto* layer = find(config, "rpc_layer", "TF_CONFIG");
  if (layer == nullptr || layer->is_null()) return std::nullopt;
  return as_text(*layer);
}

std::string TFConfigClusterResolver::master(const std::optional<std::string>& task_type, std::optional<std::int64_t> task_id,
                                            const std::optional<std::string>& rpc_layer) const {
  const auto config = load(variables_);
  const auto* session = find(config, "session_master", "TF_CONFIG");
  if (session != nullptr && session->is_string()) return session->get<std::string>();
  const auto spec = cluster_spec();
  const auto jobs = spec.jobs();
  if (jobs.empty() || (jobs.size() == 1 && spec.job_tasks(jobs[0]).size() == 1)) return "";
  const auto type = task_type ? task_type : this->task_type();
  const auto id = task_id ? task_id : this->task_id();
  if (!type || !id)
    throw Error(ErrorCode::kInvalidArgument,
                str("TF_CONFIG does not say which task this is (type ", type.value_or("missing"), ", index ",
                    id ? std::to_string(*id) : "missing", R"(); give it "task": {"type": "worker", "index": 0})"));
  return url(spec.task_address(*type, *id), rpc_layer);
}

std::map<std::string, int> TFConfigClusterResolver::num_accelerators() const {
  master();  // throws for a task that the cluster does not have
  return ClusterResolver::num_accelerators();
}

}  // namespace lockstep

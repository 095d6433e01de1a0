#include <map>

#include "lockstep/device/device_spec.h"
#include "tests/oracle_runner/suites.h"

// Device names; the clusters are in clusters.cc.

namespace lockstep::oracle {
namespace {

template <typename T>
Json or_null(const std::optional<T>& value) {
  return value ? Json(*value) : Json(nullptr);
}

Json parsed(const std::string& name) {
  const auto spec = DeviceSpec::parse(name);
  return {{"job", or_null(spec.job)},
          {"replica", or_null(spec.replica)},
          {"task", or_null(spec.task)},
          {"device_type", or_null(spec.device_type)},
          {"device_index", or_null(spec.device_index)},
          {"to_string", spec.to_string()}};
}

// The peer's helper of that name: the canonical form, of replica 0 and without job and task.
std::string without_job_and_task(const std::string& name) {
  auto spec = DeviceSpec::parse(canonicalize(name));
  spec.job = std::nullopt;
  spec.task = std::nullopt;
  spec.replica = 0;
  return spec.to_string();
}

Json device_spec(const Case& one) {
  const auto name = one.input.at("name").get<std::string>();
  const auto defaults = one.input.at("default").get<std::string>();
  return {{"parsed", field([&] { return parsed(name); })},
          {"canonicalize", field([&] { return canonicalize(name); })},
          {"canonicalize_with_default", field([&] { return canonicalize(name, defaults); })},
          {"resolve", field([&] { return canonicalize(name); })},
          {"without_job_and_task", field([&] { return without_job_and_task(name); })}};
}

Json merged_spec(const Case& one) {
  const auto base = DeviceSpec::parse(one.input.at("base").get<std::string>());
  const auto over = DeviceSpec::parse(one.input.at("over").get<std::string>());
  return {{"merged", base.merged_with(over).to_string()}};
}

Json device_spec_fields(const Case& one) {
  DeviceSpec spec;
  for (const auto& [key, value] : one.input.at("fields").items()) {
    const bool is_text = key == "job" || key == "device_type";
    if (is_text != value.is_string()) throw NotApplicable("refused at compile time: a " + key + " of another type");
    if (key == "job") spec.job = value.get<std::string>();
    else if (key == "device_type") spec.device_type = value.get<std::string>();
    else if (key == "replica") spec.replica = value.get<std::int64_t>();
    else if (key == "task") spec.task = value.get<std::int64_t>();
    else if (key == "device_index") spec.device_index = value.get<std::int64_t>();
    else throw NotApplicable("needs the device field " + key);
  }
  return {{"to_string", spec.to_string()}};
}

}  // namespace

Json answer_tf_config(const Case& one) {
  static const auto apis = [] {
    auto all = cluster_apis();
    all.insert({{"DeviceSpec", device_spec}, {"make_merged_spec", merged_spec}, {"DeviceSpec_fields", device_spec_fields}});
    return all;
  }();
  return call_api(apis, one);
}

}  // namespace lockstep::oracle

#include "lockstep/device/devices.h"

#include <map>
#include <mutex>
#include <optional>

#include "lockstep/base/error.h"
#include "lockstep/base/str.h"
#include "lockstep/device/device_spec.h"
#include "lockstep/device/torch_device.h"

namespace lockstep {
namespace {

struct Configuration {
  std::mutex mu;
  std::map<std::string, int> parts;  // "GPU:1" -> logical devices; guarded by mu
};

Configuration& configuration() {
  static auto* instance = new Configuration;
  return *instance;
}

int physical_count(const std::string& type) {
  if (type == "CPU") return 1;
  return type == "GPU" ? count_devices(c10::DeviceType::CUDA) : 0;
}

std::optional<int> configured_parts(const std::string& type, int physical) {
  const std::lock_guard lock(configuration().mu);
  const auto found = configuration().parts.find(str(type, ":", physical));
  if (found == configuration().parts.end()) return std::nullopt;
  return found->second;
}

LogicalDevice make_device(const std::string& type, int index, int physical) {
  return {canonicalize(str(type, ":", index)), type, index, physical};
}

std::vector<LogicalDevice> logical_devices(const std::string& type) {
  std::vector<LogicalDevice> devices;
  for (int physical = 0; physical < physical_count(type); ++physical)
    for (int part = 0; part < configured_parts(type, physical).value_or(1); ++part)
      devices.push_back(make_device(type, static_cast<int>(devices.size()), physical));
  return devices;
}

std::vector<std::string> types_to_list(const std::string& type) {
  return type.empty() ? std::vector<std::string>{"CPU", "GPU"} : std::vector<std::string>{type};
}

std::string what_exists() {
  std::vector<std::string> names;
  for (const auto& type : types_to_list(""))
    for (const auto& device : logical_devices(type)) names.push_back(str(type, ":", device.index));
  if (!configured_parts("CPU", 0)) names.push_back("any further CPU:k");
  return join(", ", names);
}

}  // namespace

std::vector<std::string> list_physical_devices(const std::string& type) {
  std::vector<std::string> names;
  for (const auto& t : types_to_list(type))
    for (int k = 0; k < physical_count(t); ++k) names.push_back(str(t, ":", k));
  return names;
}

void set_logical_device_configuration(const std::string& physical, int count) {
  const auto spec = DeviceSpec::parse(physical);
  const auto type = spec.device_type.value_or("CPU");
  const auto index = spec.device_index.value_or(0);
  const bool is_elsewhere = spec.job.value_or("localhost") != "localhost" || spec.task.value_or(0) != 0;
  if (is_elsewhere || index < 0 || index >= physical_count(type))
    throw Error(ErrorCode::kInvalidArgument, str("set_logical_device_configuration: there is no physical device '", physical,
                                                 "'; this process has ", join(", ", list_physical_devices())));
  if (count < 1)
    throw Error(ErrorCode::kInvalidArgument, str("set_logical_device_configuration('", physical, "', ", count,
                                                 "): the number of logical devices must be at least 1"));
  const std::lock_guard lock(configuration().mu);
  configuration().parts[str(type, ":", index)] = count;
}

void reset_logical_device_configuration() {
  const std::lock_guard lock(configuration().mu);
  configuration().parts.clear();
}

std::vector<std::string> list_logical_devices(const std::string& type) {
  std::vector<std::string> names;
  for (const auto& t : types_to_list(type))
    for (const auto& device : logical_devices(t)) names.push_back(device.name);
  return names;
}

LogicalDevice find_logical_device(const std::string& name) {
  const auto spec = DeviceSpec::parse(canonicalize(name));
  if (*spec.job != "localhost" || *spec.replica != 0 || *spec.task != 0)
    throw Error(ErrorCode::kInvalidArgument,
                str("device '", name, "' belongs to job '", *spec.job, "', replica ", *spec.replica, ", task ", *spec.task,
                    ", not to this process; name a device of this machine, for example CPU:0"));
  const auto type = *spec.device_type;
  const auto index = *spec.device_index;
  const auto devices = logical_devices(type);
  if (index >= 0 && index < static_cast<std::int64_t>(devices.size())) return devices[static_cast<std::size_t>(index)];
  constexpr std::int64_t kMostCpus = 4096;
  if (type == "CPU" && !configured_parts("CPU", 0) && index >= 0 && index < kMostCpus)
    return make_device("CPU", static_cast<int>(index), 0);
  const bool is_missing_gpu = type == "GPU" && devices.empty();
  throw Error(ErrorCode::kInvalidArgument,
              str("there is no device '", name, "'; this process has ", what_exists(),
                  is_missing_gpu ? " and sees no GPU: its LibTorch was built without CUDA, or the driver shows none (try "
                                   "nvidia-smi; make LIBTORCH=<a CUDA build> builds with another LibTorch)"
                                 : " (set_logical_device_configuration makes more)"));
}

}  // namespace lockstep

#include "lockstep/collective/device_engine.h"

#include <map>
#include <optional>
#include <sstream>

#include "lockstep/base/error.h"
#include "lockstep/base/str.h"
#include "lockstep/collective/engine_plugin.h"

namespace lockstep {
namespace {

constexpr const char* kEngine = "nccl";

// How facts begin.
constexpr const char* kGpus = "gpus ";
constexpr const char* kNoGpu = "none ";
constexpr const char* kNoEngine = "engine ";
constexpr const char* kNotAsked = "-";

std::string one_line(std::string text) {
  for (char& c : text)
    if (c == '\n') c = ' ';
  return text;
}

// Why there is no engine for all, and whose fault it is.
struct Obstacle {
  ErrorCode code = ErrorCode::kInvalidArgument;
  std::string text;
};

std::optional<Obstacle> obstacle_of(const std::string& fact, const std::string& task) {
  if (fact.starts_with(kGpus)) return std::nullopt;
  if (fact.starts_with(kNoEngine)) return Obstacle{ErrorCode::kUnimplemented, str(task, ": ", fact.substr(7))};
  return Obstacle{ErrorCode::kInvalidArgument, str(task, " has a replica that is not on a GPU")};
}

std::optional<Obstacle> shared_gpu(const std::vector<std::string>& facts, const std::vector<std::string>& tasks) {
  std::map<std::string, std::size_t> owners;
  for (std::size_t worker = 0; worker < facts.size(); ++worker) {
    std::istringstream names(facts[worker].substr(std::string(kGpus).size()));
    for (std::string name; std::getline(names, name, ',');) {
      const auto [owner, is_new] = owners.emplace(name, worker);
      if (!is_new && owner->second != worker)
        return Obstacle{ErrorCode::kInvalidArgument, str(tasks[owner->second], " and ", tasks[worker], " share ", name)};
    }
  }
  return std::nullopt;
}

std::optional<Obstacle> first_obstacle(const std::vector<std::string>& facts, const std::vector<std::string>& tasks) {
  for (std::size_t worker = 0; worker < facts.size(); ++worker)
    if (auto found = obstacle_of(facts[worker], tasks[worker])) return found;
  return shared_gpu(facts, tasks);
}

}  // namespace

std::string name_of(DeviceWish wish) {
  return wish == DeviceWish::kAuto ? "auto" : wish == DeviceWish::kNccl ? "nccl" : "through the CPU";
}

std::string device_fact_of(const std::vector<std::string>& names) { return str(kGpus, join(",", names)); }

std::string device_fact(DeviceWish wish, const std::vector<int>& gpus) {
  if (wish == DeviceWish::kNone) return kNotAsked;
  if (gpus.empty()) return kNoGpu;
  try {
    std::vector<std::string> names;
    for (const int gpu : gpus) names.push_back(name_device(kEngine, gpu));
    return device_fact_of(names);
  } catch (const Error& error) {
    return str(kNoEngine, one_line(error.message()));
  }
}

DeviceChoice choose_device_engine(DeviceWish wish, const std::vector<std::string>& facts,
                                  const std::vector<std::string>& tasks) {
  if (wish == DeviceWish::kNone) return {};
  const auto obstacle = first_obstacle(facts, tasks);
  if (!obstacle) return {kEngine, wish == DeviceWish::kNccl ? "asked for" : "every worker has GPUs of its own"};
  if (wish == DeviceWish::kNccl)
    throw Error(obstacle->code,
                str("NCCL was asked for, and ", obstacle->text,
                    "; give every worker a GPU of its own (CUDA_VISIBLE_DEVICES, or the strategy's devices; replicas that "
                    "share a GPU belong into one worker), or use AUTO or RING, which copy GPU tensors through the CPU's "
                    "memory"));
  for (const auto& fact : facts)
    if (!fact.starts_with(kNoGpu)) return {"", obstacle->text};
  return {};
}

}  // namespace lockstep

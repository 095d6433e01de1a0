#include "lockstep/device/device_spec.h"

#include <algorithm>
#include <array>
#include <string_view>
#include <vector>

#include "lockstep/base/error.h"
#include "lockstep/base/number.h"
#include "lockstep/base/str.h"

namespace lockstep {
namespace {

constexpr std::array<std::string_view, 5> kShortTypes = {"CPU", "GPU", "TPU", "XLA_CPU", "XLA_GPU"};

std::vector<std::string> split(const std::string& text, char separator) {
  std::vector<std::string> parts(1);
  for (const char c : text) {
    if (c == separator) parts.emplace_back();
    else parts.back() += c;
  }
  return parts;
}

std::int64_t parse_index(const std::string& text, const std::string& name) {
  const auto begin = text.find_first_not_of(" \t");
  const auto end = text.find_last_not_of(" \t") + 1;
  if (begin != std::string::npos)
    if (const auto value = whole_number(text.substr(begin, end - begin))) return *value;
  throw Error(ErrorCode::kInvalidArgument,
              str("device '", name, "': '", text, "' is not a number; write for example CPU:0 or /job:worker/task:1"));
}

void set_type(DeviceSpec& spec, const std::string& type, const std::string* index, const std::string& name) {
  if (spec.device_type) throw Error(ErrorCode::kInvalidArgument, str("device '", name, "' names two device types; name one"));
  spec.device_type = upper(type);
  if (index != nullptr && *index != "*") spec.device_index = parse_index(*index, name);
}

void parse_part(DeviceSpec& spec, const std::string& part, const std::string& name) {
  const auto words = split(part, ':');
  const auto& key = words[0];
  if (words.size() == 2 && key == "job") {
    spec.job = words[1];
  } else if (words.size() == 2 && key == "replica") {
    spec.replica = parse_index(words[1], name);
  } else if (words.size() == 2 && key == "task") {
    spec.task = parse_index(words[1], name);
  } else if (words.size() <= 2 && std::ranges::count(kShortTypes, upper(key)) > 0) {
    set_type(spec, key, words.size() == 2 ? &words[1] : nullptr, name);
  } else if (words.size() <= 2 && upper(key) == "CUDA") {  // LibTorch's spelling
    set_type(spec, "GPU", words.size() == 2 ? &words[1] : nullptr, name);
  } else if (words.size() == 3 && key == "device") {
    set_type(spec, words[1], &words[2], name);
  } else if (!key.empty()) {
    throw Error(ErrorCode::kInvalidArgument, str("device '", name, "': '", part,
                                                 "' is not understood; write CPU:k, GPU:k, /device:TYPE:k or the full form "
                                                 "/job:J/replica:R/task:T/device:TYPE:k"));
  }
}

}  // namespace

DeviceSpec DeviceSpec::parse(const std::string& name) {
  DeviceSpec spec;
  for (const auto& part : split(name, '/')) parse_part(spec, part, name);
  return spec;
}

std::string DeviceSpec::to_string() const {
  std::string text;
  if (job) text += str("/job:", *job);
  if (replica) text += str("/replica:", *replica);
  if (task) text += str("/task:", *task);
  if (device_type) text += str("/device:", upper(*device_type), ":", device_index ? std::to_string(*device_index) : "*");
  return text;
}

DeviceSpec DeviceSpec::merged_with(const DeviceSpec& over) const {
  DeviceSpec merged = *this;
  if (over.job) merged.job = over.job;
  if (over.replica) merged.replica = over.replica;
  if (over.task) merged.task = over.task;
  if (over.device_type) merged.device_type = over.device_type;
  if (over.device_index) merged.device_index = over.device_index;
  return merged;
}

std::string canonicalize(const std::string& name, const std::string& defaults) {
  const DeviceSpec local{"localhost", 0, 0, "CPU", 0};
  return local.merged_with(DeviceSpec::parse(defaults)).merged_with(DeviceSpec::parse(name)).to_string();
}

}  // namespace lockstep

#pragma once

#include <cstdint>
#include <optional>
#include <string>

namespace lockstep {

// A device's name taken apart. Every field may be absent. All these mean the same device:
// "CPU:0", "/cpu:0", "/device:CPU:0", "/job:localhost/replica:0/task:0/device:CPU:0".
struct DeviceSpec {
  std::optional<std::string> job = std::nullopt;
  std::optional<std::int64_t> replica = std::nullopt;
  std::optional<std::int64_t> task = std::nullopt;
  std::optional<std::string> device_type = std::nullopt;  // upper case
  std::optional<std::int64_t> device_index = std::nullopt;

  // Throws kInvalidArgument naming the part that is not understood.
  static DeviceSpec parse(const std::string& name);

  // Only the fields that are there: "/job:worker/task:2", "/device:GPU:*".
  std::string to_string() const;

  // The fields of `over`, and where it has none, ours.
  DeviceSpec merged_with(const DeviceSpec& over) const;

  friend bool operator==(const DeviceSpec&, const DeviceSpec&) = default;
};

// The full form, absent fields taken from `defaults` and then from "/job:localhost/replica:0/task:0/device:CPU:0".
std::string canonicalize(const std::string& name, const std::string& defaults = "");

}  // namespace lockstep

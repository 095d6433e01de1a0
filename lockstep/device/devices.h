#pragma once

#include <string>
#include <vector>

namespace lockstep {

// A device as a strategy uses it: one of the parts that a piece of hardware is divided into.
// Several logical devices of one physical device share its memory and its cores.
struct LogicalDevice {
  std::string name = "";     // canonical: /job:localhost/replica:0/task:0/device:CPU:1
  std::string type = "CPU";  // CPU or GPU
  int index = 0;             // k of TYPE:k
  int physical_index = 0;    // which piece of hardware
};

// The hardware of this process: "CPU:0" always, then "GPU:k". With a type, only that type's.
std::vector<std::string> list_physical_devices(const std::string& type = "");

// Divides a physical device ("CPU:0", "GPU:1") into `count` logical ones, for strategies made afterwards.
// Without a call a GPU is one logical device, and the CPU is as many `CPU:k` as are asked for by name.
// Throws kInvalidArgument for hardware that is not there or a count below 1.
void set_logical_device_configuration(const std::string& physical, int count);

// Undoes every division.
void reset_logical_device_configuration();

// The devices a strategy gets when none are named: canonical names, all types or one.
std::vector<std::string> list_logical_devices(const std::string& type = "");

// The device of that name, in any spelling. Throws kInvalidArgument saying what exists when there is none.
LogicalDevice find_logical_device(const std::string& name);

}  // namespace lockstep

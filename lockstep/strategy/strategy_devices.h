#pragma once

#include <string>
#include <vector>

#include "lockstep/device/devices.h"

namespace lockstep {

// What happens with the memory of freed tensors (CPU devices only). For the whole process, from the first strategy that
// keeps it.
enum class FreedMemory {
  kKeep,    // glibc keeps it for the next step, and tensors come from malloc: convolutions become up to 1.8 times faster
  kReturn,  // as the process had it
};

// The devices as replicas use them, `replicas_per_device` times each. `who` begins the messages: kInvalidArgument for a
// device that does not exist or is named twice, and for numbers that make no sense.
std::vector<LogicalDevice> resolve_devices(const std::string& who, const std::vector<std::string>& names,
                                           int replicas_per_device);

// Before the replica threads exist: a thread keeps the allocator arena that it starts with. `replicas`: of the whole job; a
// single one is left as the process has it.
std::vector<LogicalDevice> prepare_devices(std::vector<LogicalDevice> devices, FreedMemory freed_memory, std::size_t replicas);

}  // namespace lockstep

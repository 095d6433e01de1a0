#pragma once

#include <string>
#include <vector>

// Whether the workers of a job have an engine for tensors on GPUs. All decide alike, from what all have told.

namespace lockstep {

// kAuto: when every worker can. kNccl: else it is an error. kNone: GPU tensors go through the CPU's memory.
enum class DeviceWish { kAuto, kNccl, kNone };
std::string name_of(DeviceWish wish);

// What a worker tells the others, in one line: the GPUs of its replicas as the engine names them, or why it cannot.
// `gpus`: as CUDA counts them in this process; none: a replica is on the CPU.
std::string device_fact(DeviceWish wish, const std::vector<int>& gpus);
// The same from names.
std::string device_fact_of(const std::vector<std::string>& names);

struct DeviceChoice {
  std::string engine;  // "": none
  std::string why;     // for the log; "": there is nothing to say, no worker has a GPU
};

// `facts` and `tasks` by worker. Throws kInvalidArgument when NCCL was asked for and a worker has no GPU or two share one,
// kUnimplemented when a worker has no engine, naming them and saying what to do.
DeviceChoice choose_device_engine(DeviceWish wish, const std::vector<std::string>& facts,
                                  const std::vector<std::string>& tasks);

}  // namespace lockstep

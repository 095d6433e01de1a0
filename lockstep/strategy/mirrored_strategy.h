#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "lockstep/device/device_assignment.h"
#include "lockstep/strategy/strategy.h"
#include "lockstep/strategy/strategy_devices.h"

namespace lockstep {

struct MirroredOptions {
  // How values are combined outside run(); null: ReductionToOneDevice.
  std::shared_ptr<const CrossDeviceOps> cross_device_ops = nullptr;
  CommunicationOptions communication = {};
  // Several replicas may share every named device: the same training on fewer devices.
  int replicas_per_device = 1;
  // Replicas that own several devices: which, by their numbers in the list of devices. The devices of a replica share its
  // tensors as experimental_split_to_logical_devices and the like say. kInvalidArgument for an assignment over several tasks,
  // for more devices than are named, and beside replicas_per_device.
  std::optional<DeviceAssignment> device_assignment = std::nullopt;
  // Cores that LibTorch may use inside one replica's operations; 0: the process's cores divided by the replicas.
  // Sums inside an operation depend on it: set it to get the same bits on a machine with other cores.
  int intra_op_threads = 0;
  // Seed of the replicas' random generators (dropout, ...). Absent: what torch::manual_seed was last given.
  std::optional<std::uint64_t> seed = std::nullopt;
  FreedMemory freed_memory = FreedMemory::kKeep;
};

// Synchronous training on the devices of this machine: every variable is mirrored on every replica, every replica works
// on its part of the global batch, and gradients are summed over all replicas in a fixed order.
//
//   lockstep::MirroredStrategy strategy({"CPU:0", "CPU:1"});
class MirroredStrategy : public Strategy {
 public:
  // No devices: every GPU, or all logical CPUs when there is none. Throws kInvalidArgument for a device that does not
  // exist, is named twice, or belongs to another machine.
  explicit MirroredStrategy(const std::vector<std::string>& devices = {}, const MirroredOptions& options = {});

  std::string name() const override { return "MirroredStrategy"; }

 private:
  struct Replicas;
  struct Resolved {};  // so that {} for a list of devices is never taken for this one's first argument
  MirroredStrategy(Resolved, Replicas&& replicas, const MirroredOptions& options);
};

}  // namespace lockstep

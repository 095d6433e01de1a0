#include "lockstep/base/error.h"
#include "lockstep/device/device_graph.h"

// Where LibTorch has no CUDA, or one that cannot record.

namespace lockstep {

struct DeviceGraph::State {};

std::string DeviceGraph::why_not(c10::Device device) {
  return device.is_cpu() ? "the CPU has nothing to gain from it" : "this build of Lockstep has no CUDA graphs";
}

DeviceGraph::DeviceGraph(c10::Device device, const std::vector<at::Generator>&) {
  throw Error(ErrorCode::kUnimplemented, why_not(device));
}
DeviceGraph::~DeviceGraph() = default;
void DeviceGraph::begin() {}
void DeviceGraph::end() {}
bool DeviceGraph::is_sound() const noexcept { return false; }
void DeviceGraph::abandon() noexcept {}
void DeviceGraph::add_input(void*, const void*, std::size_t) {}
void DeviceGraph::set_input(std::size_t, const void*) {}
void DeviceGraph::replay() {}

}  // namespace lockstep

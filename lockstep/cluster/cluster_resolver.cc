#include "lockstep/cluster/cluster_resolver.h"

#include "lockstep/base/str.h"
#include "lockstep/device/devices.h"

namespace lockstep {

std::map<std::string, int> ClusterResolver::num_accelerators() const {
  const auto gpus = list_physical_devices("GPU").size();
  if (gpus == 0) return {};
  return {{"GPU", static_cast<int>(gpus)}};
}

std::string ClusterResolver::url(const std::string& address, const std::optional<std::string>& layer) const {
  const auto chosen = layer && !layer->empty() ? *layer : rpc_layer().value_or("");
  return chosen.empty() ? address : str(chosen, "://", address);
}

}  // namespace lockstep

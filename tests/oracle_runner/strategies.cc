#include "tests/oracle_runner/strategies.h"

#include <map>
#include <memory>
#include <sstream>
#include <stdexcept>

namespace lockstep::oracle {
namespace {

// The value among `all` that prints as `name`.
template <typename E>
E parse(const std::string& name, std::initializer_list<E> all) {
  for (const E value : all) {
    std::ostringstream text;
    text << value;
    if (text.str() == name) return value;
  }
  throw std::invalid_argument("unknown name in a case: " + name);
}

}  // namespace

MirroredStrategy& mirrored(int replicas) {
  static std::map<int, std::unique_ptr<MirroredStrategy>> made;
  auto& strategy = made[replicas];
  if (!strategy) {
    std::vector<std::string> devices;
    for (int i = 0; i < replicas; ++i) devices.push_back("CPU:" + std::to_string(i));
    MirroredOptions options;
    options.communication.timeout_seconds = 60;  // a case that hangs becomes one that fails
    strategy = std::make_unique<MirroredStrategy>(devices, options);
  }
  return *strategy;
}

VariableSynchronization to_synchronization(const std::string& name) {
  using enum VariableSynchronization;
  return parse(name, {kAuto, kNone, kOnWrite, kOnRead});
}

VariableAggregation to_aggregation(const std::string& name) {
  using enum VariableAggregation;
  return parse(name, {kNone, kSum, kMean, kOnlyFirstReplica});
}

}  // namespace lockstep::oracle

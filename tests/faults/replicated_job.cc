#include <ATen/ATen.h>

#include <iostream>
#include <string>
#include <vector>

#include "lockstep/base/error.h"
#include "lockstep/ps/connections.h"
#include "lockstep/ps/server_variables.h"
#include "lockstep/ps/view_keeper.h"
#include "lockstep/serve/server.h"
#include "lockstep/strategy/parameter_server_strategy.h"
#include "tests/faults/job.h"

// A job with replicated variables that counts: `replicated_job seconds=S requests=N`, as all of its tasks. For so long,
// closures add 1 to a variable of every group, so many times each; an addition counts when the servers have acknowledged it.
// The chief says "begun", "whole N" when all variables are on two servers again (N grows), and in the end "counted N" when each
// variable has exactly what was acknowledged, else "mismatch ..." or "error CODE MESSAGE".

namespace lockstep::testing {
namespace {

using ps::Operation;

// What was acknowledged, of each variable.
std::int64_t count(WorkerContext& worker, std::int64_t requests) {
  auto& client = worker.find<ps::ServerVariables>()->client();
  for (std::int64_t i = 0; i < requests; ++i) {
    std::vector<ps::ParameterClient::Update> updates;
    for (std::size_t group = 0; group < client.size(); ++group)
      updates.push_back({group, "count", Operation::Kind::kAdd, at::ones({100}, at::kLong)});
    client.update(updates);
  }
  return requests;
}
const auto kCount = remote_function("replicated_job.count", count);

// Says it once for each new state of the servers.
void say_whole(const ps::ViewKeeper& keeper, std::uint64_t& said) {
  std::uint64_t epochs = 0;
  for (const auto& view : keeper.views()) epochs += view.epoch;
  if (epochs == said || !keeper.is_complete()) return;
  std::cout << "whole " << epochs << std::endl;
  said = epochs;
}

int lead() {
  const auto seconds = number("seconds", 10);
  const auto requests = number("requests", 20);
  ParameterServerStrategy strategy(nullptr, nullptr, {.join_timeout = std::chrono::seconds(60), .replication = 2});
  ClusterCoordinator coordinator(strategy);
  auto& client = strategy.variables()->client();
  for (std::size_t group = 0; group < client.size(); ++group)
    client.create({{group,
                    {.name = "count", .dtype = static_cast<std::int8_t>(at::kLong), .shape = {100}, .whole_shape = {100}},
                    at::zeros({100}, at::kLong)}});
  std::cout << "begun" << std::endl;
  std::int64_t acknowledged = 0;
  std::uint64_t said = 0;
  for (const auto end = Deadline::after(std::chrono::seconds(seconds)); !end.has_passed();) {
    std::vector<RemoteValue<std::int64_t>> results;
    for (int i = 0; i < 4; ++i) results.push_back(coordinator.schedule(kCount, requests));
    for (const auto& result : results) acknowledged += result.get(Deadline::after(std::chrono::minutes(2)));
    say_whole(*strategy.connections()->keeper, said);
  }
  coordinator.join();
  for (std::size_t group = 0; group < client.size(); ++group) {
    const auto value = at::empty({100}, at::kLong);
    const auto version = client.read({{group, "count", value}})[0].version;
    if (!value.equal(at::full({100}, acknowledged, at::kLong)) || version != static_cast<std::uint64_t>(acknowledged)) {
      std::cout << "mismatch group " << group << " has " << value[0].item<std::int64_t>() << " in version " << version
                << ", and " << acknowledged << " were acknowledged" << std::endl;
      return 1;
    }
  }
  std::cout << "counted " << acknowledged << std::endl;
  return 0;
}

}  // namespace
}  // namespace lockstep::testing

int main(int argc, char** argv) {
  return lockstep::testing::run_job(
      argc, argv, [] { return lockstep::ServerOptions(); }, lockstep::testing::lead);
}

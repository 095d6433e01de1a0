#include "tools/lockstep/inspect.h"

#include <iomanip>
#include <nlohmann/json.hpp>
#include <ostream>

#include "lockstep/base/str.h"
#include "lockstep/cluster/resolve.h"
#include "lockstep/cluster/roles.h"
#include "tools/lockstep/flight.h"
#include "tools/lockstep/inspect_servers.h"

namespace lockstep::tool {
namespace {

double seconds_ago(const Member& member) {
  const auto age = std::chrono::steady_clock::now() - member.last_heard;
  return static_cast<double>(std::chrono::duration_cast<std::chrono::milliseconds>(age).count()) / 1000;
}

nlohmann::ordered_json to_json(const ClusterView& view) {
  nlohmann::ordered_json json = {{"tasks", nlohmann::ordered_json::array()}, {"failure", nullptr}};
  for (const auto& member : view.members)
    json["tasks"].push_back({{"task", str(member.introduction.task)},
                             {"host", member.introduction.host},
                             {"pid", member.introduction.pid},
                             {"step", member.activity.step},
                             {"doing", member.activity.doing},
                             {"heard_seconds_ago", seconds_ago(member)},
                             {"has_left", member.has_left}});
  if (view.failure)
    json["failure"] = {
        {"task", str(view.failure->task)}, {"code", name_of(view.failure->code)}, {"message", view.failure->message}};
  return json;
}

// The cluster that the environment describes.
ClusterSpec cluster_here() {
  const auto resolver = resolve_cluster();
  if (resolver != nullptr) return resolver->cluster_spec();
  throw Error(ErrorCode::kInvalidArgument,
              "inspect: give HOST:PORT of a task or a folder with flight records, or set TF_CONFIG, which names all tasks");
}

Address coordinator_of(const ClusterSpec& cluster) {
  const std::string job = cluster.has_job("chief") ? "chief" : "worker";
  return Address::parse(cluster.task_address(job, cluster.task_indices(job).front()), job);
}

}  // namespace

void run_inspect(std::ostream& out, const InspectOptions& options) {
  if (!options.records.empty()) return print_flight(out, read_flight_records(options.records), options.as_json);
  if (!options.address) {
    const auto cluster = cluster_here();
    if (task_count(cluster, "ps") > 0) return print_servers(out, inspect_servers(cluster, options.timeout), options.as_json);
  }
  const auto address = options.address ? *options.address : coordinator_of(cluster_here());
  if (const auto view = inspect_servers(address, options.timeout)) return print_servers(out, *view, options.as_json);
  print_cluster(out, inspect_cluster(address, options.timeout, TlsFiles::from_environment()), options.as_json);
}

void print_cluster(std::ostream& out, const ClusterView& view, bool as_json) {
  if (as_json) {
    out << to_json(view).dump(2) << "\n";
    return;
  }
  constexpr int kTask = 14;
  constexpr int kHost = 24;
  constexpr int kNumber = 10;
  out << std::left << std::setw(kTask) << "task" << std::setw(kHost) << "host" << std::setw(kNumber) << "process"
      << std::setw(kNumber) << "step" << std::setw(kNumber) << "heard"
      << "doing\n";
  for (const auto& member : view.members)
    out << std::setw(kTask) << str(member.introduction.task) << std::setw(kHost) << member.introduction.host
        << std::setw(kNumber) << member.introduction.pid << std::setw(kNumber)
        << (member.activity.step < 0 ? "-" : str(member.activity.step)) << std::setw(kNumber) << str(seconds_ago(member), " s")
        << (member.has_left ? "has left" : member.activity.doing) << "\n";
  if (view.failure) out << "failed: " << view.failure->message << "\n";
}

}  // namespace lockstep::tool

#include "lockstep/cluster/ranked_cluster_resolver.h"

#include <utility>

#include "lockstep/base/error.h"
#include "lockstep/base/number.h"
#include "lockstep/base/str.h"
#include "lockstep/cluster/address.h"

namespace lockstep {
namespace {

constexpr std::int64_t kMostWorkers = 100'000;

// One launcher's variables, which must all be there.
struct Variables {
  std::string source;
  const Environment& all;

  std::string text(const std::string& name) const {
    const auto value = all.get(name);
    if (value && !value->empty()) return *value;
    throw Error(ErrorCode::kFailedPrecondition, str(source, ": ", name, " is not set; it belongs to a described cluster"));
  }

  std::int64_t number(const std::string& name) const {
    const auto word = text(name);
    if (const auto value = whole_number(word); value && *value >= 0) return *value;
    throw Error(ErrorCode::kInvalidArgument, str(source, ": ", name, " is '", word, "'; it must be a number of 0 or more"));
  }

  std::int64_t size(const std::string& name) const {
    const auto workers = number(name);
    if (workers >= 1 && workers <= kMostWorkers) return workers;
    throw Error(ErrorCode::kInvalidArgument,
                str(source, ": ", name, " is ", workers, "; a cluster has 1 to ", kMostWorkers, " workers"));
  }
};

// Worker 0's address and as many that are not known yet.
std::vector<std::string> with_leader(const std::string& leader, std::int64_t size) {
  std::vector<std::string> addresses(static_cast<std::size_t>(size));
  addresses[0] = leader;
  return addresses;
}

// Where worker 0 can listen. torchrun itself may hold MASTER_PORT, for a store that it serves to its workers.
int torchrun_port(const Variables& from) {
  constexpr int kHighestPort = 65535;
  const bool is_held = from.all.get("TORCHELASTIC_USE_AGENT_STORE").value_or("") == "True";
  const auto port = from.number("MASTER_PORT") + (is_held ? 1 : 0);
  if (port <= kHighestPort) return static_cast<int>(port);
  throw Error(ErrorCode::kInvalidArgument, str(from.source, ": MASTER_PORT is ", from.text("MASTER_PORT"),
                                               ", and worker 0's port would be ", port, "; a port is at most ", kHighestPort));
}

// "train-3" -> {"train", 3}
std::pair<std::string, std::int64_t> split_pod_name(const std::string& name) {
  const auto dash = name.rfind('-');
  if (dash != std::string::npos && dash > 0)
    if (const auto index = whole_number(name.substr(dash + 1))) return {name.substr(0, dash), *index};
  throw Error(ErrorCode::kInvalidArgument, str("the pod's host name '", name,
                                               "' does not end in its number; use a StatefulSet or an Indexed Job, or set "
                                               "TF_CONFIG"));
}

}  // namespace

RankedClusterResolver::RankedClusterResolver(const Ranks& ranks) : source_(ranks.source) {
  if (ranks.rank >= static_cast<std::int64_t>(ranks.addresses.size()))
    throw Error(ErrorCode::kFailedPrecondition, str(source_, ": this is rank ", ranks.rank, " of a cluster of ",
                                                    ranks.addresses.size(), " workers; ranks count from 0"));
  spec_.set_job("worker", ranks.addresses);
  task_type_ = "worker";
  task_id_ = ranks.rank;
}

std::string RankedClusterResolver::master(const std::optional<std::string>& task_type, std::optional<std::int64_t> task_id,
                                          const std::optional<std::string>& rpc_layer) const {
  return url(spec_.task_address(task_type.value_or(*this->task_type()), task_id.value_or(*this->task_id())), rpc_layer);
}

RankedClusterResolver::Ranks RankedClusterResolver::torchrun_ranks(const Environment& variables) {
  const Variables from{"torchrun's variables", variables};
  const auto rank = from.number("RANK");
  const auto size = from.size("WORLD_SIZE");
  const auto host = from.text("MASTER_ADDR");
  return {from.source, rank, with_leader(str(Address{host, torchrun_port(from)}), size)};
}

RankedClusterResolver::Ranks RankedClusterResolver::mpi_ranks(const Environment& variables) {
  const Variables from{"mpirun's variables", variables};
  const std::string prefix = variables.get("OMPI_COMM_WORLD_SIZE") ? "OMPI_COMM_WORLD_" : "PMI_";
  const auto rank = from.number(prefix + "RANK");
  return {from.source, rank, with_leader("", from.size(prefix + "SIZE"))};
}

RankedClusterResolver::Ranks RankedClusterResolver::pod_ranks(const Environment& variables) {
  const Variables from{"the Kubernetes pod's environment", variables};
  const auto [base, index] = split_pod_name(from.text("HOSTNAME"));
  const auto rank = variables.get("JOB_COMPLETION_INDEX") ? from.number("JOB_COMPLETION_INDEX") : index;
  const auto size = from.size("LOCKSTEP_K8S_REPLICAS");
  const auto service = from.text("LOCKSTEP_K8S_SERVICE");
  const auto port = variables.get("LOCKSTEP_K8S_PORT").value_or("8470");
  std::vector<std::string> addresses;
  for (std::int64_t k = 0; k < size; ++k) addresses.push_back(str(base, "-", k, ".", service, ":", port));
  return {from.source, rank, std::move(addresses)};
}

}  // namespace lockstep

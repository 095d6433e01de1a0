#include "lockstep/ps/connections.h"

#include "lockstep/base/environment.h"
#include "lockstep/base/str.h"
#include "lockstep/ps/fields.h"

namespace lockstep::ps {
namespace {

std::vector<std::shared_ptr<RpcChannel>> channels_to(const ClusterSpec& spec, const std::string& job, const RpcOptions& rpc) {
  std::vector<std::shared_ptr<RpcChannel>> channels;
  if (!spec.has_job(job)) return channels;
  for (const auto& [index, text] : spec.tasks(job)) {
    const auto name = task_name({job, index});
    channels.push_back(std::make_shared<RpcChannel>(name, Address::parse(text, name), rpc));
  }
  return channels;
}

}  // namespace

std::string task_name(const Task& task) { return str("/job:", task.type, "/task:", task.index); }

RpcOptions rpc_options(const std::string& secret, const TlsFiles& tls) {
  RpcOptions options;
  options.secret = secret.empty() ? Environment().get("LOCKSTEP_JOB_SECRET").value_or("") : secret;
  options.tls = tls.is_given() ? tls : TlsFiles::from_environment();
  return options;
}

Connections::Connections(const ClusterSpec& spec, Replication replication, const RpcOptions& rpc, const ClientOptions& options)
    : servers(channels_to(spec, "ps", rpc)),
      workers(replication == Replication::kAsk ? std::vector<std::shared_ptr<RpcChannel>>() : channels_to(spec, "worker", rpc)),
      client(std::make_shared<ParameterClient>(targets_of_groups(server_targets(), replication), options)) {}

std::vector<std::shared_ptr<CallTarget>> Connections::server_targets() const {
  std::vector<std::shared_ptr<CallTarget>> targets;
  for (const auto& channel : servers) targets.push_back(target_of(channel));
  return targets;
}

std::vector<TaskFacts> Connections::wait_for_all(const Deadline& deadline) const {
  std::vector<TaskFacts> facts;
  std::vector<std::string> missing;
  for (const auto* const group : {&servers, &workers})
    for (const auto& channel : *group) {
      try {
        // Once the time is over, those that are there still answer.
        const auto wait = missing.empty() ? deadline : Deadline::after(std::chrono::seconds(1));
        channel->wait_until_reachable(wait);
        const auto reply = channel->call(TaskFacts::kMethod, {}, Deadline::after(std::chrono::seconds(10)));
        if (group == &workers) facts.push_back(from_bytes<TaskFacts>(reply->fields()));
      } catch (const Error& error) {
        if (error.code() != ErrorCode::kDeadlineExceeded && error.code() != ErrorCode::kUnavailable) throw;
        missing.push_back(channel->name());
      }
    }
  if (missing.empty()) return facts;
  throw Error(ErrorCode::kDeadlineExceeded,
              str("these servers do not answer: ", join(", ", missing),
                  "; start the program as every task of the cluster (lockstep run --ps N --workers M --chief PROGRAM)"));
}

}  // namespace lockstep::ps

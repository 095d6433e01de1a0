#include "tools/lockstep/inspect_servers.h"

#include "lockstep/base/environment.h"
#include "lockstep/base/error.h"
#include "lockstep/base/str.h"
#include "lockstep/ps/fields.h"

namespace lockstep::tool {
namespace {

ps::RpcOptions rpc_options() {
  ps::RpcOptions options;
  options.secret = Environment().get("LOCKSTEP_JOB_SECRET").value_or("");
  options.tls = TlsFiles::from_environment();
  options.shared_bytes = 0;
  return options;
}

// A question that is under way.
struct Question {
  Question(const Task& of, const std::string& at, const ps::RpcOptions& options)
      : answer{.task = of, .address = at}, channel(str(of), Address::parse(at, str(of)), options) {}

  TaskAnswer answer;
  ps::RpcChannel channel;
  ps::PendingCall call = {};
};

void hear(Question& question) try {
  question.answer.report = ps::from_bytes<ps::TaskReport>(question.call.wait()->fields());
} catch (const Error& error) {
  if (error.code() == ErrorCode::kUnavailable) question.answer.why_not = "is not there";
  else if (error.code() == ErrorCode::kDeadlineExceeded) question.answer.why_not = "does not answer";
  else question.answer.why_not = error.message();
}

}  // namespace

ServersView inspect_servers(const ClusterSpec& cluster, std::chrono::nanoseconds timeout) {
  const auto options = rpc_options();
  const auto deadline = Deadline::after(timeout);
  std::vector<std::unique_ptr<Question>> questions;
  for (const std::string job : {"chief", "ps", "worker"}) {
    if (!cluster.has_job(job)) continue;
    for (const auto& [index, address] : cluster.tasks(job)) {
      questions.push_back(std::make_unique<Question>(Task{job, index}, address, options));
      questions.back()->call = questions.back()->channel.start(ps::TaskReport::kMethod, {}, deadline);
    }
  }
  ServersView view;
  for (const auto& question : questions) {
    hear(*question);
    view.tasks.push_back(std::move(question->answer));
  }
  return view;
}

std::optional<ServersView> inspect_servers(const Address& address, std::chrono::nanoseconds timeout) try {
  const auto deadline = Deadline::after(timeout);
  ps::RpcChannel channel("the task", address, rpc_options());
  const auto reply = channel.call(ps::TaskReport::kMethod, {}, deadline);
  const auto report = ps::from_bytes<ps::TaskReport>(reply->fields());
  if (report.coordinator) return inspect_servers(ClusterSpec::from_json(report.cluster), timeout);
  TaskAnswer answer{.task = report.task(), .address = str(address), .report = report};
  if (report.store)
    answer.variables =
        ps::from_bytes<ps::DescribeReply>(channel.call(ps::methods::kDescribe, {}, deadline)->fields()).variables;
  for (const auto& group : report.groups)
    answer.group_variables.push_back(
        ps::from_bytes<ps::DescribeReply>(
            channel.call(ps::methods::kGroupDescribe, {ps::to_bytes(group.group)}, deadline)->fields())
            .variables);
  return ServersView{{std::move(answer)}};
} catch (const Error& error) {
  if (error.code() == ErrorCode::kUnimplemented) return std::nullopt;
  if (error.code() == ErrorCode::kFailedPrecondition)
    throw Error(error.code(), str(error.message(), "; this command needs the job's LOCKSTEP_JOB_SECRET too"));
  throw;
}

}  // namespace lockstep::tool

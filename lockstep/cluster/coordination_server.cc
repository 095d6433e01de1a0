#include <grpcpp/grpcpp.h>

#include <algorithm>

#include "lockstep/base/str.h"
#include "lockstep/cluster/coordination.grpc.pb.h"
#include "lockstep/cluster/coordination.h"
#include "lockstep/cluster/lifeline.h"
#include "lockstep/cluster/rpc.h"

namespace lockstep {
namespace {

using internal::as_status;

constexpr std::chrono::milliseconds kLongestWait = internal::kLongestWait;

Deadline deadline_of(const rpc::Wait& wait) {
  return Deadline::after(
      std::clamp(std::chrono::milliseconds(wait.milliseconds()), std::chrono::milliseconds(0), kLongestWait));
}

class Service final : public rpc::Coordination::Service {
 public:
  Service(Members& members, LifelineServer& lifelines) : members_(members), lifelines_(lifelines) {}

  grpc::Status Join(grpc::ServerContext*, const rpc::Introduction* request, rpc::Admission* reply) override {
    return as_status([&] {
      const auto member = members_.join(internal::from_message(*request));
      reply->set_member(member);
      reply->set_lifeline_port(lifelines_.port());
      reply->set_ticket(lifelines_.admit(member));
    });
  }

  grpc::Status Tell(grpc::ServerContext*, const rpc::Note* request, rpc::Nothing*) override {
    const auto& activity = request->activity();
    return as_status([&] { members_.note(request->member(), {activity.step(), activity.doing(), activity.calls()}); });
  }

  grpc::Status Fail(grpc::ServerContext*, const rpc::Report* request, rpc::Nothing*) override {
    return as_status([&] { members_.fail(request->member(), internal::code_from(request->code()), request->message()); });
  }

  grpc::Status Put(grpc::ServerContext*, const rpc::Value* request, rpc::Nothing*) override {
    return as_status([&] { members_.put(request->member(), request->key(), request->value()); });
  }

  grpc::Status Get(grpc::ServerContext*, const rpc::Wait* request, rpc::Value* reply) override {
    return as_status([&] { reply->set_value(members_.get(request->member(), request->name(), deadline_of(*request))); });
  }

  grpc::Status Barrier(grpc::ServerContext*, const rpc::Wait* request, rpc::Nothing*) override {
    return as_status([&] { members_.barrier(request->name(), request->member(), deadline_of(*request)); });
  }

  grpc::Status AwaitFailure(grpc::ServerContext*, const rpc::Wait* request, rpc::Members* reply) override {
    return as_status([&] {
      if (const auto failure = members_.failure(deadline_of(*request)))
        internal::to_message(*failure, *reply->mutable_failure());
    });
  }

  grpc::Status List(grpc::ServerContext*, const rpc::Nothing*, rpc::Members* reply) override {
    return as_status([&] {
      for (const auto& member : members_.all()) {
        auto* to = reply->add_members();
        internal::to_message(member.introduction, *to->mutable_introduction());
        to->mutable_introduction()->clear_secret();
        to->mutable_activity()->set_step(member.activity.step);
        to->mutable_activity()->set_doing(member.activity.doing);
        to->mutable_activity()->set_calls(member.activity.calls);
        const auto age = std::chrono::steady_clock::now() - member.last_heard;
        to->set_heard_milliseconds_ago(std::chrono::duration_cast<std::chrono::milliseconds>(age).count());
        to->set_has_left(member.has_left);
      }
      if (const auto failure = members_.failure()) internal::to_message(*failure, *reply->mutable_failure());
    });
  }

 private:
  Members& members_;
  LifelineServer& lifelines_;
};

}  // namespace

struct CoordinationServer::State {
  State(const Address& listen_on, const ClusterSpec& spec, std::vector<Task> expected, const CoordinationOptions& options)
      : farewell(options.farewell),
        members(std::move(expected), options.secret, spec.to_json(), build_name()),
        lifelines(listen_on.host, {[this](std::uint64_t id, const std::string& how) { members.lose(id, how); },
                                   [this](std::uint64_t id) { members.leave(id); }}),
        service(members, lifelines) {
    grpc::ServerBuilder builder;
    builder.AddChannelArgument(GRPC_ARG_ALLOW_REUSEPORT, 0);  // a port in use is an error, not a second server
    builder.SetMaxReceiveMessageSize(internal::kMostMessageBytes);
    builder.AddListeningPort(str(listen_on), internal::server_credentials(options.tls), &port);
    builder.RegisterService(&service);
    server = builder.BuildAndStart();
    if (server == nullptr || port == 0)
      throw Error(ErrorCode::kFailedPrecondition, str("the coordinator cannot listen on ", listen_on,
                                                      "; is another process using the port, and is this its host?"));
  }

  const std::chrono::nanoseconds farewell;
  Members members;
  LifelineServer lifelines;
  Service service;
  int port = 0;
  std::unique_ptr<grpc::Server> server;
};

CoordinationServer::CoordinationServer(const Address& listen_on, const ClusterSpec& spec, std::vector<Task> expected,
                                       const CoordinationOptions& options)
    : state_(std::make_unique<State>(listen_on, spec, std::move(expected), options)) {}

CoordinationServer::~CoordinationServer() {
  state_->members.wait_for_goodbyes(Deadline::after(state_->farewell));
  state_->members.close();  // who still waits is told
  // gRPC waits for its clients to hang up, and a process that is stopped does not.
  const auto patience = state_->members.failure() ? std::chrono::milliseconds(200) : std::chrono::milliseconds(2000);
  state_->server->Shutdown(std::chrono::system_clock::now() + patience);
}

int CoordinationServer::port() const noexcept { return state_->port; }

}  // namespace lockstep

#include <grpcpp/grpcpp.h>

#include "lockstep/base/str.h"
#include "lockstep/cluster/coordination.h"
#include "lockstep/cluster/coordination_service.h"
#include "lockstep/cluster/lifeline.h"
#include "lockstep/cluster/rpc.h"

namespace lockstep {

struct CoordinationServer::State {
  State(const Address& listen_on, const ClusterSpec& spec, std::vector<Task> expected, const CoordinationOptions& options)
      : farewell(options.farewell),
        members(std::move(expected), options.secret, spec.to_json(), build_name()),
        lifelines(listen_on.host, {[this](std::uint64_t id, const std::string& how) { members.lose(id, how); },
                                   [this](std::uint64_t id) { members.leave(id); }}),
        service(members, lifelines.port(), [this](std::uint64_t member) { return lifelines.admit(member); }) {
    grpc::ServerBuilder builder;
    builder.AddChannelArgument(GRPC_ARG_ALLOW_REUSEPORT, 0);  // a port in use is an error, not a second server
    builder.SetMaxReceiveMessageSize(internal::kMostMessageBytes);
    builder.AddListeningPort(str(listen_on), internal::server_credentials(options.tls), &port);
    builder.RegisterService(&service);
    server = builder.BuildAndStart();
    if (server == nullptr || port == 0) throw internal::cannot_serve("the coordinator", listen_on, options.tls);
  }

  const std::chrono::nanoseconds farewell;
  Members members;
  LifelineServer lifelines;
  internal::CoordinationService service;
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

#pragma once

#include <functional>

#include "lockstep/cluster/coordination.grpc.pb.h"
#include "lockstep/cluster/members.h"

namespace lockstep::internal {

// The requests that reach a coordinator, each answered from its book. Not for users: it brings generated code.
class CoordinationService final : public rpc::Coordination::Service {
 public:
  // `admit` gives a new member the ticket for its lifeline.
  CoordinationService(Members& members, int lifeline_port, std::function<std::uint64_t(std::uint64_t member)> admit)
      : members_(members), lifeline_port_(lifeline_port), admit_(std::move(admit)) {}

  grpc::Status Join(grpc::ServerContext*, const rpc::Introduction* request, rpc::Admission* reply) override;
  grpc::Status Tell(grpc::ServerContext*, const rpc::Note* request, rpc::Heard* reply) override;
  grpc::Status Fail(grpc::ServerContext*, const rpc::Report* request, rpc::Nothing*) override;
  grpc::Status Put(grpc::ServerContext*, const rpc::Value* request, rpc::Nothing*) override;
  grpc::Status Get(grpc::ServerContext*, const rpc::Wait* request, rpc::Value* reply) override;
  grpc::Status Barrier(grpc::ServerContext*, const rpc::Wait* request, rpc::Nothing*) override;
  grpc::Status AwaitFailure(grpc::ServerContext*, const rpc::Wait* request, rpc::Members* reply) override;
  grpc::Status List(grpc::ServerContext*, const rpc::Nothing*, rpc::Members* reply) override;

 private:
  std::uint64_t admit(const Introduction& introduction);

  Members& members_;
  const int lifeline_port_;
  const std::function<std::uint64_t(std::uint64_t member)> admit_;
};

}  // namespace lockstep::internal

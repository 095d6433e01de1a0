#include "lockstep/cluster/coordination.h"

// In place of the service, in a build without gRPC.

namespace lockstep {
namespace {

[[noreturn]] void refuse() {
  throw Error(ErrorCode::kUnimplemented,
              "this build of Lockstep has no gRPC, which several machines need; install libgrpc++-dev, protobuf-compiler and "
              "protobuf-compiler-grpc, and build again");
}

}  // namespace

struct CoordinationServer::State {};
CoordinationServer::CoordinationServer(const Address&, const ClusterSpec&, std::vector<Task>, const CoordinationOptions&) {
  refuse();
}
CoordinationServer::~CoordinationServer() = default;
int CoordinationServer::port() const noexcept { return 0; }

struct CoordinationClient::State {};
CoordinationClient::CoordinationClient(const Address&, const ClusterSpec&, const Task&, const CoordinationOptions&,
                                       std::function<void(const Failure&)>) {
  refuse();
}
CoordinationClient::~CoordinationClient() = default;
void CoordinationClient::put(const std::string&, const std::string&) { refuse(); }
std::string CoordinationClient::get(const std::string&, std::chrono::nanoseconds) { refuse(); }
void CoordinationClient::barrier(const std::string&, std::chrono::nanoseconds) { refuse(); }
void CoordinationClient::set_activity(const Activity&) { refuse(); }
std::chrono::nanoseconds CoordinationClient::clock_offset() const { refuse(); }
void CoordinationClient::fail(ErrorCode, const std::string&) { refuse(); }
std::optional<Failure> CoordinationClient::failure() const { refuse(); }

ClusterView inspect_cluster(const Address&, std::chrono::nanoseconds, const TlsFiles&) { refuse(); }

}  // namespace lockstep

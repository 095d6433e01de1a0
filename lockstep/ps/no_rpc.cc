#include "lockstep/ps/rpc.h"

// In place of the calls, in a build without gRPC.

namespace lockstep::ps {
namespace {

[[noreturn]] void refuse() {
  throw Error(ErrorCode::kUnimplemented,
              "this build of Lockstep has no gRPC, which parameter servers and their workers need; install libgrpc++-dev, "
              "protobuf-compiler and protobuf-compiler-grpc, and build again");
}

}  // namespace

struct RpcServer::State {};
RpcServer::RpcServer(const Address&, std::map<std::string, Method>, const RpcOptions&) { refuse(); }
RpcServer::~RpcServer() = default;
int RpcServer::port() const noexcept { return 0; }

struct PendingCall::State {};
PendingCall::~PendingCall() = default;
PendingCall& PendingCall::operator=(PendingCall&&) noexcept = default;
std::unique_ptr<Incoming> PendingCall::wait() { refuse(); }
void PendingCall::cancel() noexcept {}

struct RpcChannel::State {
  std::string name;
};
RpcChannel::RpcChannel(std::string, const Address&, const RpcOptions&) { refuse(); }
RpcChannel::~RpcChannel() = default;
const std::string& RpcChannel::name() const noexcept { return state_->name; }
bool RpcChannel::shares_memory() const { return false; }
PendingCall RpcChannel::start(const std::string&, const Outgoing&, const Deadline&) { refuse(); }
void RpcChannel::wait_until_reachable(const Deadline&) { refuse(); }

}  // namespace lockstep::ps

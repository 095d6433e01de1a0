#pragma once

#include <grpcpp/grpcpp.h>

#include <chrono>
#include <memory>
#include <string>

#include "lockstep/base/error.h"
#include "lockstep/cluster/coordination.h"
#include "lockstep/cluster/coordination.pb.h"

// Between gRPC's types and ours. Not for users: it brings third-party types.

namespace lockstep::internal {

ErrorCode code_from(int grpc_code) noexcept;
grpc::StatusCode code_of(ErrorCode code) noexcept;

// Throws the error that the status carries, if it carries one. `what` begins the text of those that gRPC made itself.
void throw_if_bad(const grpc::Status& status, const std::string& what);

// What `body` returns as a status; an Error becomes one.
template <typename Body>
grpc::Status as_status(Body&& body) {
  try {
    body();
    return grpc::Status::OK;
  } catch (const Error& error) {
    return {code_of(error.code()), error.message()};
  } catch (const std::exception& error) {
    return {grpc::StatusCode::INTERNAL, error.what()};
  }
}

// Throw kInvalidArgument for files that cannot be read.
std::shared_ptr<grpc::ServerCredentials> server_credentials(const TlsFiles& tls);
std::shared_ptr<grpc::ChannelCredentials> channel_credentials(const TlsFiles& tls);

// Which files they are, and that gRPC does not take them.
std::string unusable(const TlsFiles& tls);

// Why a server did not start: gRPC does not say it. kFailedPrecondition; `who` begins the text.
Error cannot_serve(const std::string& who, const Address& listen_on, const TlsFiles& tls);

// Throws kInvalidArgument for files that are no PEM, or do not fit together. A client's gRPC finds out only when it connects,
// and then tries again and again; a server's, which is what this asks, at once.
void require_usable(const TlsFiles& tls);

void set_deadline(grpc::ClientContext& context, std::chrono::nanoseconds timeout);

Task from_message(const rpc::Task& task);
Introduction from_message(const rpc::Introduction& introduction);
Failure from_message(const rpc::Failure& failure);
void to_message(const Task& task, rpc::Task& message);
void to_message(const Introduction& introduction, rpc::Introduction& message);
void to_message(const Failure& failure, rpc::Failure& message);

// No request waits longer.
inline constexpr std::chrono::hours kLongestWait(24);

// The largest message either side takes: a coordinator carries names and addresses.
inline constexpr int kMostMessageBytes = 4 << 20;

}  // namespace lockstep::internal

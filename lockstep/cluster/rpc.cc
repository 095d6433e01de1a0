#include "lockstep/cluster/rpc.h"

#include <grpc/support/log.h>
#include <grpcpp/security/credentials.h>

#include <array>
#include <fstream>
#include <sstream>
#include <utility>

#include "lockstep/base/log.h"
#include "lockstep/base/str.h"
#include "lockstep/cluster/coordination.grpc.pb.h"
#include "lockstep/cluster/socket.h"

namespace lockstep::internal {
namespace {

constexpr std::array<std::pair<ErrorCode, grpc::StatusCode>, 11> kCodes = {{
    {ErrorCode::kInvalidArgument, grpc::StatusCode::INVALID_ARGUMENT},
    {ErrorCode::kFailedPrecondition, grpc::StatusCode::FAILED_PRECONDITION},
    {ErrorCode::kOutOfRange, grpc::StatusCode::OUT_OF_RANGE},
    {ErrorCode::kNotFound, grpc::StatusCode::NOT_FOUND},
    {ErrorCode::kUnavailable, grpc::StatusCode::UNAVAILABLE},
    {ErrorCode::kDeadlineExceeded, grpc::StatusCode::DEADLINE_EXCEEDED},
    {ErrorCode::kAborted, grpc::StatusCode::ABORTED},
    {ErrorCode::kCancelled, grpc::StatusCode::CANCELLED},
    {ErrorCode::kDataLoss, grpc::StatusCode::DATA_LOSS},
    {ErrorCode::kUnimplemented, grpc::StatusCode::UNIMPLEMENTED},
    {ErrorCode::kInternal, grpc::StatusCode::INTERNAL},
}};

std::string read_file(const std::string& path, const char* what) {
  std::ifstream in(path, std::ios::binary);
  std::ostringstream text;
  text << in.rdbuf();
  if (in && !text.str().empty()) return text.str();
  throw Error(ErrorCode::kInvalidArgument, str("TLS: the ", what, " '", path,
                                               "' cannot be read; give PEM files for the authority (LOCKSTEP_TLS_CA), the "
                                               "certificate (LOCKSTEP_TLS_CERTIFICATE) and "
                                               "the key (LOCKSTEP_TLS_KEY)"));
}

// gRPC writes to standard error by itself, also what we report as an error; its lines go where ours do.
void take_grpc_log() {
  [[maybe_unused]] static const bool is_taken = [] {
    gpr_set_log_function([](gpr_log_func_args* line) { log(LogLevel::kInfo, str("gRPC: ", line->message)); });
    return true;
  }();
}

}  // namespace

ErrorCode code_from(int grpc_code) noexcept {
  for (const auto& [ours, theirs] : kCodes)
    if (theirs == grpc_code) return ours;
  return ErrorCode::kInternal;
}

grpc::StatusCode code_of(ErrorCode code) noexcept {
  for (const auto& [ours, theirs] : kCodes)
    if (ours == code) return theirs;
  return grpc::StatusCode::INTERNAL;
}

void throw_if_bad(const grpc::Status& status, const std::string& what) {
  if (status.ok()) return;
  throw Error(code_from(status.error_code()), str(what, ": ", status.error_message()));
}

std::shared_ptr<grpc::ServerCredentials> server_credentials(const TlsFiles& tls) {
  take_grpc_log();
  if (!tls.is_given()) return grpc::InsecureServerCredentials();
  grpc::SslServerCredentialsOptions options(GRPC_SSL_REQUEST_AND_REQUIRE_CLIENT_CERTIFICATE_AND_VERIFY);
  options.pem_root_certs = read_file(tls.certificate_authority, "authority");
  options.pem_key_cert_pairs.push_back({read_file(tls.key, "key"), read_file(tls.certificate, "certificate")});
  return grpc::SslServerCredentials(options);
}

std::string unusable(const TlsFiles& tls) {
  return str("the certificate '", tls.certificate, "', the key '", tls.key, "' and the authority '", tls.certificate_authority,
             "' do not fit together, or are no PEM files");
}

Error cannot_serve(const std::string& who, const Address& listen_on, const TlsFiles& tls) {
  try {
    Socket::listen(listen_on);
  } catch (const Error& error) {
    return Error(ErrorCode::kFailedPrecondition,
                 str(who, " cannot listen on ", listen_on, ": ", error.message(), " Is this its host?"));
  }
  return Error(ErrorCode::kFailedPrecondition,
               str(who, " cannot serve on ", listen_on,
                   ", which is free: ", tls.is_given() ? unusable(tls) : str("gRPC refuses; LOCKSTEP_LOG=info says more")));
}

void require_usable(const TlsFiles& tls) {
  if (!tls.is_given()) return;
  rpc::Coordination::Service nothing;  // a server must have something to serve
  grpc::ServerBuilder builder;
  int port = 0;
  builder.RegisterService(&nothing);
  builder.AddListeningPort("127.0.0.1:0", server_credentials(tls), &port);
  if (builder.BuildAndStart() == nullptr || port == 0) throw Error(ErrorCode::kInvalidArgument, str("TLS: ", unusable(tls)));
}

std::shared_ptr<grpc::ChannelCredentials> channel_credentials(const TlsFiles& tls) {
  take_grpc_log();
  if (!tls.is_given()) return grpc::InsecureChannelCredentials();
  return grpc::SslCredentials({.pem_root_certs = read_file(tls.certificate_authority, "authority"),
                               .pem_private_key = read_file(tls.key, "key"),
                               .pem_cert_chain = read_file(tls.certificate, "certificate")});
}

void set_deadline(grpc::ClientContext& context, std::chrono::nanoseconds timeout) {
  context.set_deadline(std::chrono::system_clock::now() + std::chrono::duration_cast<std::chrono::microseconds>(timeout));
}

Task from_message(const rpc::Task& task) { return {task.type(), task.index()}; }

Introduction from_message(const rpc::Introduction& introduction) {
  return {from_message(introduction.task()),
          introduction.secret(),
          introduction.spec(),
          introduction.build(),
          introduction.host(),
          introduction.pid()};
}

Failure from_message(const rpc::Failure& failure) {
  return {from_message(failure.task()), code_from(failure.code()), failure.message()};
}

void to_message(const Task& task, rpc::Task& message) {
  message.set_type(task.type);
  message.set_index(task.index);
}

void to_message(const Introduction& introduction, rpc::Introduction& message) {
  to_message(introduction.task, *message.mutable_task());
  message.set_secret(introduction.secret);
  message.set_spec(introduction.spec);
  message.set_build(introduction.build);
  message.set_host(introduction.host);
  message.set_pid(introduction.pid);
}

void to_message(const Failure& failure, rpc::Failure& message) {
  to_message(failure.task, *message.mutable_task());
  message.set_code(code_of(failure.code));
  message.set_message(failure.message);
}

}  // namespace lockstep::internal

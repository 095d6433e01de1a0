#include <grpcpp/generic/async_generic_service.h>
#include <grpcpp/grpcpp.h>

#include <atomic>
#include <new>
#include <utility>

#include "lockstep/base/str.h"
#include "lockstep/cluster/rpc.h"
#include "lockstep/cluster/secret.h"
#include "lockstep/ps/rpc.h"
#include "lockstep/ps/rpc_buffers.h"
#include "lockstep/ps/rpc_threads.h"

namespace lockstep::ps {
namespace {

using namespace internal;

// How long replies that were given may take to leave, when the server ends. A process that is stopped does not take its own.
constexpr std::chrono::seconds kLastReplies(2);

// What every call of the job carries.
std::string metadata(const grpc::CallbackServerContext& context, const char* key) {
  const auto found = context.client_metadata().find(key);
  return found == context.client_metadata().end() ? "" : std::string(found->second.data(), found->second.size());
}

// LibTorch has no type of its own for memory that is not there.
bool is_of_memory(const std::exception& error) {
  const std::string text = error.what();
  return text.find("allocate memory") != std::string::npos || text.find("out of memory") != std::string::npos;
}

// What is being caught, as the caller gets it.
Error error_of_handler() {
  const Error no_memory(ErrorCode::kUnavailable, "out of memory; the server goes on, and may have some later");
  try {
    throw;
  } catch (const Error& error) {
    return error;
  } catch (const std::bad_alloc&) {
    return no_memory;
  } catch (const std::exception& error) {
    return is_of_memory(error) ? no_memory : Error(ErrorCode::kInternal, error.what());
  } catch (...) {
    return Error(ErrorCode::kInternal, "the method threw something that is no std::exception");
  }
}

class Service final : public grpc::CallbackGenericService {
 public:
  Service(std::map<std::string, Method> methods, const RpcOptions& options)
      : methods_(std::move(methods)), options_(options), threads_(options.most_threads, options.most_bytes) {}

  grpc::ServerGenericBidiReactor* CreateReactor(grpc::GenericCallbackServerContext* context) override;

  // Nobody is served any more, and what runs has ended.
  void close() {
    is_ending_ = true;
    threads_.close();
  }

  // Throws kFailedPrecondition for strangers. Nothing of theirs has been read.
  void require_ours(const grpc::CallbackServerContext& context) const;
  const Method& method(const std::string& path) const;  // throws kUnimplemented
  Error refusal() const {
    return Error(ErrorCode::kUnavailable, is_ending_ ? "the server is ending"
                                                     : "the server is busy: too many requests wait; "
                                                       "try again later");
  }
  bool is_ending() const { return is_ending_; }
  const RpcOptions& options() const { return options_; }
  RpcThreads& threads() { return threads_; }

 private:
  // Const after construction.
  const std::map<std::string, Method> methods_;
  const RpcOptions options_;

  std::atomic<bool> is_ending_ = false;
  RpcThreads threads_;
};

// One call. gRPC has it until OnDone, which comes after the reply and whatever became of the caller.
class Call final : public grpc::ServerGenericBidiReactor {
 public:
  Call(Service& service, const Method& method, const grpc::CallbackServerContext& context)
      : service_(service), method_(method), context_(context) {
    StartRead(&message_);
  }

  void OnReadDone(bool is_ok) override {
    if (!is_ok) return Finish({grpc::StatusCode::INVALID_ARGUMENT, "a call without a message"});
    if (service_.is_ending()) return refuse();
    if (method_.kind == HandlerKind::kQuick) return run();
    const auto when = [this](RpcThreads::Turn turn) { turn == RpcThreads::Turn::kHasCome ? run() : refuse(); };
    if (!service_.threads().add(when, message_.Length())) refuse();
  }
  void OnDone() override { delete this; }

 private:
  void run() {
    if (context_.IsCancelled()) return Finish(grpc::Status::CANCELLED);  // nobody waits for it
    answer([&] {
      auto held = hold(message_);
      message_.Clear();
      auto parts = take_apart(std::move(held.bytes));
      Outgoing reply;
      {
        Received request(std::move(parts.fields), std::move(parts.payload), std::move(held.hold));
        method_.handler(request, reply);
      }
      require_size(reply);
      return to_buffer(front_of({}, {}, reply.fields), reply.payload);
    });
  }
  void refuse() {
    answer([&]() -> grpc::ByteBuffer { throw service_.refusal(); });
  }
  template <typename Make>
  void answer(Make&& make) {
    try {
      reply_ = make();
    } catch (...) {
      reply_ = to_buffer(front_of(error_of_handler()), {});
    }
    message_.Clear();
    StartWriteAndFinish(&reply_, grpc::WriteOptions(), grpc::Status::OK);
  }
  void require_size(const Outgoing& reply) const {
    const auto bytes = reply.fields.size() + payload_bytes(reply);
    if (bytes > service_.options().most_bytes)
      throw Error(ErrorCode::kInvalidArgument, str("the reply has ", bytes, " bytes, and a message at most ",
                                                   service_.options().most_bytes, "; ask for less at a time"));
  }

  // Const after construction.
  Service& service_;
  const Method& method_;
  const grpc::CallbackServerContext& context_;

  // Used by one thread at a time.
  grpc::ByteBuffer message_;
  grpc::ByteBuffer reply_;
};

// A call that is answered at once: refused, or a hello.
class Answered final : public grpc::ServerGenericBidiReactor {
 public:
  explicit Answered(const grpc::Status& status) { Finish(status); }
  explicit Answered(const std::string& front) : reply_(to_buffer(front, {})) {
    StartWriteAndFinish(&reply_, grpc::WriteOptions(), grpc::Status::OK);
  }
  void OnDone() override { delete this; }

 private:
  grpc::ByteBuffer reply_;
};

grpc::ServerGenericBidiReactor* Service::CreateReactor(grpc::GenericCallbackServerContext* context) {
  const auto stranger = lockstep::internal::as_status([&] { require_ours(*context); });
  if (!stranger.ok()) return new Answered(stranger);
  if (context->method() == kHello) return new Answered(front_of({}, {}, ""));
  try {
    return new Call(*this, method(context->method()), *context);
  } catch (const Error& error) {
    return new Answered(front_of(error));
  }
}

void Service::require_ours(const grpc::CallbackServerContext& context) const {
  if (!lockstep::internal::is_same_secret(metadata(context, kSecretKey), options_.secret))
    throw Error(ErrorCode::kFailedPrecondition,
                "the caller's job secret is another one; start all tasks with the same LOCKSTEP_JOB_SECRET");
  const auto build = metadata(context, kBuildKey);
  if (build != options_.build)
    throw Error(ErrorCode::kFailedPrecondition,
                str("the caller runs Lockstep '", build, "' and the server '", options_.build, "'; use one build"));
}

const Method& Service::method(const std::string& path) const {
  const std::string_view prefix = kMethods;
  const auto name = path.starts_with(prefix) ? path.substr(prefix.size()) : path;
  const auto found = methods_.find(name);
  if (found != methods_.end()) return found->second;
  std::vector<std::string> names;
  for (const auto& [known, method] : methods_) names.push_back(known);
  throw Error(ErrorCode::kUnimplemented, str("there is no method '", name, "' here; there are: ", join(", ", names)));
}

}  // namespace

struct RpcServer::State {
  State(const Address& listen_on, std::map<std::string, Method> methods, const RpcOptions& options)
      : service(std::move(methods), options) {
    require_possible(options.most_bytes);
    grpc::ServerBuilder builder;
    builder.AddChannelArgument(GRPC_ARG_ALLOW_REUSEPORT, 0);  // a port in use is an error, not a second server
    // Clients ask often whether we live.
    builder.AddChannelArgument(GRPC_ARG_HTTP2_MIN_RECV_PING_INTERVAL_WITHOUT_DATA_MS, 100);
    builder.AddChannelArgument(GRPC_ARG_HTTP2_MAX_PING_STRIKES, 0);
    builder.AddChannelArgument(GRPC_ARG_KEEPALIVE_PERMIT_WITHOUT_CALLS, 1);
    builder.SetMaxReceiveMessageSize(most_received(options.most_bytes));
    builder.AddListeningPort(str(listen_on), lockstep::internal::server_credentials(options.tls), &port);
    builder.RegisterCallbackGenericService(&service);
    server = builder.BuildAndStart();
    if (server == nullptr || port == 0) throw lockstep::internal::cannot_serve("a server", listen_on, options.tls);
  }

  Service service;
  int port = 0;
  std::unique_ptr<grpc::Server> server;
};

RpcServer::RpcServer(const Address& listen_on, std::map<std::string, Method> methods, const RpcOptions& options)
    : state_(std::make_unique<State>(listen_on, std::move(methods), options)) {}

RpcServer::~RpcServer() {
  state_->service.close();
  state_->server->Shutdown(std::chrono::system_clock::now() + kLastReplies);
}

int RpcServer::port() const noexcept { return state_->port; }

}  // namespace lockstep::ps

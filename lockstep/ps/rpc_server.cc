#include <grpcpp/generic/async_generic_service.h>
#include <grpcpp/grpcpp.h>

#include <atomic>
#include <mutex>
#include <new>
#include <set>
#include <utility>

#include "lockstep/base/str.h"
#include "lockstep/cluster/rpc.h"
#include "lockstep/cluster/secret.h"
#include "lockstep/ps/rpc.h"
#include "lockstep/ps/rpc_buffers.h"
#include "lockstep/ps/rpc_lane.h"
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
Error error_for_caller() {
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

constexpr std::size_t kMostLanes = 1024;

class Share;

class Service final : public grpc::CallbackGenericService {
 public:
  Service(std::map<std::string, Method> methods, const RpcOptions& options)
      : methods_(std::move(methods)), options_(options), threads_(options.most_threads, options.most_bytes) {}

  grpc::ServerGenericBidiReactor* CreateReactor(grpc::GenericCallbackServerContext* context) override;

  // Nobody is served any more, and what runs has ended.
  void close();

  // Lanes of clients, by the calls that keep them (Note [lanes]). Throws for what cannot be shared.
  void add(Share& call);
  void open(Share& call, const Offer& offer);
  void remove(Share& call);
  std::shared_ptr<Lane> lane(std::uint64_t id) const;  // null: there is none

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
  const std::string machine_ = machine_key();

  // Own synchronisation.
  std::atomic<bool> is_ending_ = false;
  RpcThreads threads_;

  // Guarded by mu_.
  mutable std::mutex mu_;
  std::set<Share*> shares_;
  std::map<std::uint64_t, std::shared_ptr<Lane>> lanes_;
};

// A call that keeps a lane. It lasts until the client, or the server, has no use for it.
class Share final : public grpc::ServerGenericBidiReactor {
 public:
  explicit Share(Service& service) : service_(service) {
    service_.add(*this);
    StartRead(&message_);
  }
  void OnReadDone(bool is_ok) override {
    if (!is_ok || has_answered_) return end();
    has_answered_ = true;
    std::string answer;
    try {
      service_.open(*this, offer());
      answer = front_of({}, {}, "");
    } catch (...) {
      answer = front_of(error_for_caller());
    }
    answer_ = to_buffer(answer, {});
    StartWrite(&answer_);
    StartRead(&message_);  // until the client has no more to say: it has gone, or has let go of the lane
  }
  void OnDone() override {
    service_.remove(*this);
    delete this;
  }
  void end() {
    if (!is_ending_.exchange(true)) Finish(grpc::Status::OK);
  }

  std::uint64_t lane = 0;  // guarded by the service's mu_

 private:
  Offer offer() const {
    std::string bytes;
    for (const auto& piece : hold(message_).bytes) bytes.append(reinterpret_cast<const char*>(piece.data()), piece.size());
    return from_bytes<Offer>(bytes);
  }

  Service& service_;
  std::atomic<bool> is_ending_ = false;

  // Used by one thread at a time.
  bool has_answered_ = false;
  grpc::ByteBuffer message_;
  grpc::ByteBuffer answer_;
};

void Service::close() {
  {
    const std::lock_guard lock(mu_);
    is_ending_ = true;
  }
  threads_.close();
  const std::lock_guard lock(mu_);
  for (auto* share : shares_) share->end();
}

void Service::add(Share& call) {
  const std::lock_guard lock(mu_);
  if (is_ending_) throw refusal();
  shares_.insert(&call);
}

void Service::open(Share& call, const Offer& offer) {
  if (options_.shared_bytes == 0) throw Error(ErrorCode::kUnimplemented, "this server shares no memory");
  if (offer.machine != machine_) throw Error(ErrorCode::kUnavailable, "this is another machine, or another user's process");
  auto lane = Lane::open(offer);
  const std::lock_guard lock(mu_);
  if (lanes_.size() >= kMostLanes) throw Error(ErrorCode::kUnavailable, "this server shares memory with too many others");
  if (offer.lane == 0 || !lanes_.emplace(offer.lane, std::move(lane)).second)
    throw Error(ErrorCode::kInvalidArgument, str("a lane cannot have the number ", offer.lane));
  call.lane = offer.lane;
}

void Service::remove(Share& call) {
  const std::lock_guard lock(mu_);
  shares_.erase(&call);
  lanes_.erase(call.lane);
}

std::shared_ptr<Lane> Service::lane(std::uint64_t id) const {
  if (id == 0) return nullptr;
  const std::lock_guard lock(mu_);
  const auto found = lanes_.find(id);
  return found == lanes_.end() ? nullptr : found->second;
}

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
      const auto lane = service_.lane(parts.head.lane);
      if (!parts.slots.empty()) {
        require_lane(lane, parts);
        parts.payload = Cursor(lane->find(Lane::Half::kRequests, parts.slots, parts.head.shared_bytes));
        held.hold = lane;
      }
      Outgoing reply;
      {  // no more of the request is used when the caller gets its answer
        Received request(std::move(parts.fields), std::move(parts.payload), std::move(held.hold));
        method_.handler(request, reply);
      }
      return to_send(reply, lane);
    });
  }
  void require_lane(const std::shared_ptr<Lane>& lane, const Parts& parts) const {
    if (lane == nullptr)
      throw Error(ErrorCode::kUnavailable,
                  "the caller has put its bytes into memory that it shared with an earlier server; call again");
    require_size("request", parts.fields.size() + parts.head.shared_bytes);
  }
  grpc::ByteBuffer to_send(const Outgoing& reply, const std::shared_ptr<Lane>& lane) const {
    const auto bytes = payload_bytes(reply);
    require_size("reply", reply.fields.size() + bytes);
    if (lane != nullptr)
      if (const auto slots = lane->put(Lane::Half::kReplies, reply.payload, bytes))
        return to_buffer(front_of({.shared_bytes = bytes}, *slots, reply.fields), {});
    return to_buffer(front_of({}, {}, reply.fields), reply.payload);
  }
  void refuse() {
    answer([&]() -> grpc::ByteBuffer { throw service_.refusal(); });
  }
  template <typename Make>
  void answer(Make&& make) {
    try {
      reply_ = make();
    } catch (...) {
      reply_ = to_buffer(front_of(error_for_caller()), {});
    }
    message_.Clear();
    StartWriteAndFinish(&reply_, grpc::WriteOptions(), grpc::Status::OK);
  }
  void require_size(const char* what, std::size_t bytes) const {
    if (bytes > service_.options().most_bytes)
      throw Error(ErrorCode::kInvalidArgument, str("the ", what, " has ", bytes, " bytes, and a message at most ",
                                                   service_.options().most_bytes, "; send less at a time"));
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
    if (context->method() == kShare) return new Share(*this);
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

#include <grpcpp/generic/async_generic_service.h>
#include <grpcpp/grpcpp.h>

#include <algorithm>
#include <atomic>
#include <condition_variable>
#include <mutex>
#include <new>
#include <set>
#include <thread>
#include <utility>
#include <vector>

#include "lockstep/base/str.h"
#include "lockstep/base/thread.h"
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
std::string metadata(const grpc::ServerContext& context, const char* key) {
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

class Service;

// A call, as gRPC has it.
struct Wire {
  grpc::GenericServerContext context;
  grpc::GenericServerAsyncReaderWriter stream{&context};
};

// What a thread of the server does next when gRPC has done something.
class Step {
 public:
  virtual ~Step() = default;
  virtual void proceed(bool is_ok) = 0;
};

// A call that has come. It has one step at a time with gRPC, and ends with the last.
class Active : public Step {
 public:
  Active(Service& service, std::unique_ptr<Wire> wire);
  ~Active() override;
  Active(const Active&) = delete;
  Active& operator=(const Active&) = delete;

  // Ends its step soon.
  void cancel() { wire_->context.TryCancel(); }

 protected:
  Service& service_;
  const std::unique_ptr<Wire> wire_;
};

class Service {
 public:
  Service(std::map<std::string, Method> methods, const RpcOptions& options)
      : methods_(std::move(methods)), options_(options), threads_(options.most_threads, options.most_bytes) {}

  // A new call; its steps are gRPC's from now on.
  void begin(std::unique_ptr<Wire> wire);

  // Nobody is served any more, and what runs has ended.
  void close();
  // After gRPC has cancelled all.
  void wait_for_all();

  // All calls.
  void add(Active& call);
  void remove(Active& call);

  // Lanes of clients (Note [lanes]). Throws for what cannot be shared.
  void open(const Offer& offer);
  void keep(Active& call);  // until close() cancels it
  void forget(std::uint64_t lane);
  std::shared_ptr<Lane> lane(std::uint64_t id) const;  // null: there is none

  Error refusal() const {
    return Error(ErrorCode::kUnavailable,
                 is_ending_ ? "the server is ending" : "the server is busy: too many requests wait; try again later");
  }
  bool is_ending() const { return is_ending_; }
  const RpcOptions& options() const { return options_; }
  RpcThreads& threads() { return threads_; }

 private:
  // Throws kFailedPrecondition for strangers. Nothing of theirs has been read.
  void require_ours(const grpc::ServerContext& context) const;
  const Method& method(const std::string& path) const;  // throws kUnimplemented

  // Const after construction.
  const std::map<std::string, Method> methods_;
  const RpcOptions options_;
  const std::string machine_ = machine_key();

  // Own synchronisation.
  std::atomic<bool> is_ending_ = false;
  RpcThreads threads_;

  // Guarded by mu_.
  mutable std::mutex mu_;
  std::condition_variable changed_;
  std::set<Active*> active_;
  std::set<Active*> lasting_;  // those of them that have no end of their own
  std::map<std::uint64_t, std::shared_ptr<Lane>> lanes_;
};

Active::Active(Service& service, std::unique_ptr<Wire> wire) : service_(service), wire_(std::move(wire)) {
  service_.add(*this);
}
Active::~Active() { service_.remove(*this); }

// A call that keeps a lane. It lasts until the client, or the server, has no use for it.
class Share final : public Active {
 public:
  Share(Service& service, std::unique_ptr<Wire> wire) : Active(service, std::move(wire)) {
    service_.keep(*this);
    wire_->stream.Read(&message_, this);
  }
  ~Share() override { service_.forget(lane_); }

  void proceed(bool is_ok) override {
    switch (is_ok ? next_ : Next::kEnd) {
      case Next::kAnswer: next_ = Next::kWait; return wire_->stream.Write(answer(), this);
      case Next::kWait:  // until the client has gone, or has let go of the lane
        next_ = Next::kEnd;
        return wire_->stream.Read(&message_, this);
      case Next::kEnd: delete this;
    }
  }

 private:
  enum class Next { kAnswer, kWait, kEnd };

  grpc::ByteBuffer answer() {
    try {
      std::string bytes;
      for (const auto& piece : hold(message_).bytes) bytes.append(reinterpret_cast<const char*>(piece.data()), piece.size());
      const auto offer = from_bytes<Offer>(bytes);
      service_.open(offer);
      lane_ = offer.lane;
      return to_buffer(front_of({}, {}, ""), {});
    } catch (...) {
      return to_buffer(front_of(error_for_caller()), {});
    }
  }

  // Used by one thread at a time.
  Next next_ = Next::kAnswer;
  grpc::ByteBuffer message_;
  std::uint64_t lane_ = 0;
};

void Service::close() {
  is_ending_ = true;
  threads_.close();
  const std::lock_guard lock(mu_);
  for (auto* call : lasting_) call->cancel();
}

void Service::wait_for_all() {
  std::unique_lock lock(mu_);
  changed_.wait(lock, [&] { return active_.empty(); });
}

void Service::add(Active& call) {
  const std::lock_guard lock(mu_);
  active_.insert(&call);
}

void Service::remove(Active& call) {
  const std::lock_guard lock(mu_);
  active_.erase(&call);
  lasting_.erase(&call);
  changed_.notify_all();
}

void Service::keep(Active& call) {
  const std::lock_guard lock(mu_);
  lasting_.insert(&call);
  if (is_ending_) call.cancel();
}

void Service::open(const Offer& offer) {
  if (options_.shared_bytes == 0) throw Error(ErrorCode::kUnimplemented, "this server shares no memory");
  if (offer.machine != machine_) throw Error(ErrorCode::kUnavailable, "this is another machine, or another user's process");
  auto lane = Lane::open(offer);
  const std::lock_guard lock(mu_);
  if (lanes_.size() >= kMostLanes) throw Error(ErrorCode::kUnavailable, "this server shares memory with too many others");
  if (offer.lane == 0 || !lanes_.emplace(offer.lane, std::move(lane)).second)
    throw Error(ErrorCode::kInvalidArgument, str("a lane cannot have the number ", offer.lane));
}

void Service::forget(std::uint64_t lane) {
  const std::lock_guard lock(mu_);
  lanes_.erase(lane);
}

std::shared_ptr<Lane> Service::lane(std::uint64_t id) const {
  if (id == 0) return nullptr;
  const std::lock_guard lock(mu_);
  const auto found = lanes_.find(id);
  return found == lanes_.end() ? nullptr : found->second;
}

// A call of a method.
class Call final : public Active {
 public:
  Call(Service& service, std::unique_ptr<Wire> wire, const Method& method) : Active(service, std::move(wire)), method_(method) {
    wire_->stream.Read(&message_, this);
  }

  void proceed(bool is_ok) override {
    if (!is_ok || has_answered_) {  // it was answered, or the caller has gone
      delete this;
      return;
    }
    if (service_.is_ending()) return refuse();
    if (method_.kind == HandlerKind::kQuick) return run();
    const auto when = [this](RpcThreads::Turn turn) { turn == RpcThreads::Turn::kHasCome ? run() : refuse(); };
    if (!service_.threads().add(when, message_.Length())) refuse();
  }

 private:
  void run() {
    if (std::chrono::system_clock::now() > wire_->context.deadline()) {  // nobody waits for it
      has_answered_ = true;
      return wire_->stream.Finish({grpc::StatusCode::DEADLINE_EXCEEDED, "its turn came too late"}, this);
    }
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
    grpc::ByteBuffer reply;
    try {
      reply = make();
    } catch (...) {
      reply = to_buffer(front_of(error_for_caller()), {});
    }
    message_.Clear();
    has_answered_ = true;
    wire_->stream.WriteAndFinish(reply, grpc::WriteOptions(), grpc::Status::OK, this);
  }
  void require_size(const char* what, std::size_t bytes) const {
    if (bytes > service_.options().most_bytes)
      throw Error(ErrorCode::kInvalidArgument, str("the ", what, " has ", bytes, " bytes, and a message at most ",
                                                   service_.options().most_bytes, "; send less at a time"));
  }

  const Method& method_;

  // Used by one thread at a time.
  bool has_answered_ = false;
  grpc::ByteBuffer message_;
};

// A call that is answered at once: refused, or a hello.
class Answered final : public Active {
 public:
  Answered(Service& service, std::unique_ptr<Wire> wire, const grpc::Status& status) : Active(service, std::move(wire)) {
    wire_->stream.Finish(status, this);
  }
  Answered(Service& service, std::unique_ptr<Wire> wire, const std::string& front) : Active(service, std::move(wire)) {
    wire_->stream.WriteAndFinish(to_buffer(front, {}), grpc::WriteOptions(), grpc::Status::OK, this);
  }
  void proceed(bool) override { delete this; }
};

// They own themselves: gRPC has them, and the last step deletes them.
void Service::begin(std::unique_ptr<Wire> wire) {
  const auto path = wire->context.method();
  const auto stranger = lockstep::internal::as_status([&] { require_ours(wire->context); });
  if (!stranger.ok()) {
    new Answered(*this, std::move(wire), stranger);
  } else if (path == kHello) {
    new Answered(*this, std::move(wire), front_of({}, {}, ""));
  } else if (path == kShare) {
    new Share(*this, std::move(wire));
  } else {
    const Method* known = nullptr;
    try {
      known = &method(path);
    } catch (const Error& error) {
      new Answered(*this, std::move(wire), front_of(error));
      return;
    }
    new Call(*this, std::move(wire), *known);
  }
}

void Service::require_ours(const grpc::ServerContext& context) const {
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

// Waits for the next call, and for the next.
class Arrival final : public Step {
 public:
  Arrival(Service& service, grpc::AsyncGenericService& generic, grpc::ServerCompletionQueue& queue)
      : service_(service), generic_(generic), queue_(queue) {
    request();
  }
  void proceed(bool is_ok) override {
    if (!is_ok) return;  // there are no more
    auto arrived = std::move(wire_);
    request();
    service_.begin(std::move(arrived));
  }

 private:
  void request() {
    wire_ = std::make_unique<Wire>();
    generic_.RequestCall(&wire_->context, &wire_->stream, &queue_, &queue_, this);
  }

  Service& service_;
  grpc::AsyncGenericService& generic_;
  grpc::ServerCompletionQueue& queue_;
  std::unique_ptr<Wire> wire_;
};

// A thread that does what gRPC has to do, each with a queue of its own: two on one queue would wake each other up at every
// step.
struct Poller {
  std::unique_ptr<grpc::ServerCompletionQueue> queue;
  std::unique_ptr<Arrival> arrival;
  std::jthread thread;  // last: joined first

  void run() const {
    void* step = nullptr;
    for (bool is_ok = false; queue->Next(&step, &is_ok);) static_cast<Step*>(step)->proceed(is_ok);
  }
};

}  // namespace

struct RpcServer::State {
  State(const Address& listen_on, std::map<std::string, Method> methods, const RpcOptions& options)
      : service(std::move(methods), options), pollers(static_cast<std::size_t>(std::clamp(available_cores() / 2, 1, 4))) {
    require_possible(options.most_bytes);
    grpc::ServerBuilder builder;
    builder.AddChannelArgument(GRPC_ARG_ALLOW_REUSEPORT, 0);  // a port in use is an error, not a second server
    // Clients ask often whether we live.
    builder.AddChannelArgument(GRPC_ARG_HTTP2_MIN_RECV_PING_INTERVAL_WITHOUT_DATA_MS, 100);
    builder.AddChannelArgument(GRPC_ARG_HTTP2_MAX_PING_STRIKES, 0);
    builder.AddChannelArgument(GRPC_ARG_KEEPALIVE_PERMIT_WITHOUT_CALLS, 1);
    builder.SetMaxReceiveMessageSize(most_received(options.most_bytes));
    builder.AddListeningPort(str(listen_on), lockstep::internal::server_credentials(options.tls), &port);
    builder.RegisterAsyncGenericService(&generic);
    for (auto& poller : pollers) poller.queue = builder.AddCompletionQueue();
    server = builder.BuildAndStart();
    if (server == nullptr || port == 0) {
      close();
      throw lockstep::internal::cannot_serve("a server", listen_on, options.tls);
    }
    for (auto& poller : pollers) {
      poller.arrival = std::make_unique<Arrival>(service, generic, *poller.queue);
      poller.thread = start_thread("lockstep:serve", [&poller](const std::stop_token&) { poller.run(); });
    }
  }

  void close() {
    service.close();
    if (server != nullptr) server->Shutdown(std::chrono::system_clock::now() + kLastReplies);
    service.wait_for_all();
    for (auto& poller : pollers) poller.queue->Shutdown();
    for (auto& poller : pollers) {
      if (poller.thread.joinable()) poller.thread.join();
      poller.run();  // what is left, when there was no thread
    }
  }

  Service service;
  grpc::AsyncGenericService generic;
  int port = 0;
  std::vector<Poller> pollers;
  std::unique_ptr<grpc::Server> server;
};

RpcServer::RpcServer(const Address& listen_on, std::map<std::string, Method> methods, const RpcOptions& options)
    : state_(std::make_unique<State>(listen_on, std::move(methods), options)) {}

RpcServer::~RpcServer() { state_->close(); }

int RpcServer::port() const noexcept { return state_->port; }

}  // namespace lockstep::ps

#include <grpcpp/generic/generic_stub.h>
#include <grpcpp/grpcpp.h>

#include <algorithm>
#include <atomic>
#include <condition_variable>
#include <mutex>
#include <utility>

#include "lockstep/base/log.h"
#include "lockstep/base/reminder.h"
#include "lockstep/base/str.h"
#include "lockstep/cluster/rpc.h"
#include "lockstep/ps/rpc.h"
#include "lockstep/ps/rpc_buffers.h"
#include "lockstep/ps/rpc_sharing.h"

namespace lockstep::ps {
namespace {

using namespace internal;
using std::chrono::milliseconds;
using std::chrono::nanoseconds;

constexpr milliseconds kRetry(100);           // after a connection was refused; then more, up to
constexpr milliseconds kLongestRetry(1000);   // this
constexpr milliseconds kOneTry(5000);         // to connect; with TLS that is four times back and forth
constexpr milliseconds kAskAfter(2000);       // of silence, whether the server lives
constexpr milliseconds kAnswerWithin(2000);   // or it is gone
constexpr std::chrono::seconds kLastLook(1);  // at why a server was not reached
constexpr std::chrono::seconds kSayAfter(5);  // how long a server may be missing before the log says so

std::shared_ptr<grpc::Channel> open_channel(const Address& address, const RpcOptions& options) {
  require_possible(options.most_bytes);
  lockstep::internal::require_usable(options.tls);
  const auto set = [](grpc::ChannelArguments& arguments, const char* name, milliseconds time) {
    arguments.SetInt(name, static_cast<int>(time.count()));
  };
  grpc::ChannelArguments arguments;
  arguments.SetMaxReceiveMessageSize(most_received(options.most_bytes));
  set(arguments, GRPC_ARG_INITIAL_RECONNECT_BACKOFF_MS, kRetry);
  set(arguments, GRPC_ARG_MIN_RECONNECT_BACKOFF_MS, kOneTry);  // so is it named, and is no pause
  set(arguments, GRPC_ARG_MAX_RECONNECT_BACKOFF_MS, kLongestRetry);
  set(arguments, GRPC_ARG_KEEPALIVE_TIME_MS, kAskAfter);
  set(arguments, GRPC_ARG_KEEPALIVE_TIMEOUT_MS, kAnswerWithin);
  // Also for memory that gRPC has not sent yet, of calls that were given up.
  arguments.SetInt(GRPC_ARG_KEEPALIVE_PERMIT_WITHOUT_CALLS, 1);
  arguments.SetInt(GRPC_ARG_HTTP2_MAX_PINGS_WITHOUT_DATA, 0);  // no limit
  arguments.SetInt(GRPC_ARG_ENABLE_HTTP_PROXY, 0);
  arguments.SetInt(GRPC_ARG_ENABLE_RETRIES, 0);  // who calls knows what may be repeated
  arguments.SetInt(GRPC_ARG_SERVICE_CONFIG_DISABLE_RESOLUTION, 1);
  arguments.SetInt(GRPC_ARG_USE_LOCAL_SUBCHANNEL_POOL, 1);  // a connection of its own
  return grpc::CreateCustomChannel(str(address), lockstep::internal::channel_credentials(options.tls), arguments);
}

// What a channel and its calls know.
struct Link {
  Link(std::string of, const Address& at, const RpcOptions& with)
      : name(std::move(of)),
        address(at),
        options(with),
        channel(open_channel(at, with)),
        stub(channel),
        sharing(channel, stub, with) {}

  std::string who() const { return str(name, " at ", address); }

  const std::string name;
  const Address address;
  const RpcOptions options;
  const std::shared_ptr<grpc::Channel> channel;
  grpc::GenericStub stub;
  Sharing sharing;
};

// Frees slots that have been read.
struct ReadSlots {
  ReadSlots(std::shared_ptr<SharedLane> of, std::vector<std::uint32_t> read) : lane(std::move(of)), slots(std::move(read)) {}
  ~ReadSlots() { lane->lane().free(slots); }
  ReadSlots(const ReadSlots&) = delete;
  ReadSlots& operator=(const ReadSlots&) = delete;

  const std::shared_ptr<SharedLane> lane;
  const std::vector<std::uint32_t> slots;
};

// What gRPC has of a call until its end. It does not own the channel: gRPC lets go of it on threads of its own, and a channel
// that ends on one of them waits for that thread, itself (seen as an abort in grpc_cq_internal_unref).
struct Ending {
  // gRPC's until is_done, then the one's who waits.
  grpc::ByteBuffer request;
  grpc::ByteBuffer reply;
  grpc::Status status;

  // Guarded by mu.
  std::mutex mu;
  std::condition_variable changed;
  bool is_done = false;
  bool is_lending = false;  // gRPC has memory without an owner
};

}  // namespace

struct PendingCall::State {
  State(std::shared_ptr<Link> over, std::string of, const Deadline& deadline) : link(std::move(over)), method(std::move(of)) {
    const auto timeout = std::clamp<nanoseconds>(deadline.remaining(), nanoseconds(0), lockstep::internal::kLongestWait);
    lockstep::internal::set_deadline(*context, timeout);
    introduce(*context, link->options);
  }

  // gRPC has the message and calls back, with the ending, whatever happens.
  void start(const std::string& path, const Outgoing& message);
  grpc::ByteBuffer to_send(const Outgoing& message);
  // Waits until gRPC has no more of the caller's memory. Bounded by the deadline, and then by kAskAfter + kAnswerWithin.
  void wait_for_end();
  void cancel() {
    was_cancelled = true;
    const std::lock_guard lock(context_mu);
    if (context != nullptr) context->TryCancel();
  }
  // The reply, after the end. Throws what the server threw, and what gRPC says.
  std::unique_ptr<Incoming> result();
  Error failure() const;

  // Const after construction.
  const std::shared_ptr<Link> link;
  const std::string method;

  std::atomic<bool> was_cancelled = false;

  // Used only by who starts and who waits.
  bool is_taken = false;
  std::shared_ptr<SharedLane> lane;  // null: there was none
  std::vector<std::uint32_t> slots;  // of the request

  // Guarded by context_mu, which is never held together with the ending's.
  std::mutex context_mu;
  std::unique_ptr<grpc::ClientContext> context = std::make_unique<grpc::ClientContext>();  // null after the end

  const std::shared_ptr<Ending> ending = std::make_shared<Ending>();
};

void PendingCall::State::start(const std::string& path, const Outgoing& message) {
  ending->request = to_send(message);
  link->stub.UnaryCall(context.get(), path, grpc::StubOptions(), &ending->request, &ending->reply,
                       [of_call = ending](const grpc::Status& status) {
                         of_call->request.Clear();
                         const std::lock_guard lock(of_call->mu);
                         of_call->status = status;
                         of_call->is_done = true;
                         of_call->changed.notify_all();
                       });
}

grpc::ByteBuffer PendingCall::State::to_send(const Outgoing& message) {
  Head head;
  lane = link->sharing.lane();
  if (lane != nullptr) {
    head.lane = lane->lane().id();
    const auto bytes = payload_bytes(message);
    if (const auto taken = lane->lane().put(Lane::Half::kRequests, message.payload, bytes)) {
      slots = *taken;
      head.shared_bytes = bytes;
      return to_buffer(front_of(head, slots, message.fields), {});
    }
  }
  // The owner of what has none: it is gone when gRPC has no piece any more.
  const auto loan = std::shared_ptr<const void>(ending.get(), [of_call = ending](const void*) {
    const std::lock_guard lock(of_call->mu);
    of_call->is_lending = false;
    of_call->changed.notify_all();
  });
  ending->is_lending = true;
  auto pieces = message.payload;
  for (auto& piece : pieces)
    if (piece.owner == nullptr) piece.owner = loan;
  return to_buffer(front_of(head, {}, message.fields), pieces);
}

void PendingCall::State::wait_for_end() {
  std::unique_lock lock(ending->mu);
  ending->changed.wait(lock, [&] { return ending->is_done; });
  lock.unlock();
  {  // a call that has ended keeps what it has not sent, as long as its context lives
    const std::lock_guard context_lock(context_mu);
    context.reset();
  }
  lock.lock();
  ending->changed.wait(lock, [&] { return !ending->is_lending; });
}

std::unique_ptr<Incoming> PendingCall::State::result() {
  const auto shared = std::exchange(lane, nullptr);
  if (!ending->status.ok()) {
    link->sharing.drop(shared);
    throw failure();
  }
  auto held = hold(ending->reply);
  auto parts = take_apart(std::move(held.bytes));
  if (shared != nullptr) shared->lane().free(slots);
  if (const auto error = error_in(parts, link->name)) throw *error;
  if (parts.slots.empty())
    return std::make_unique<Received>(std::move(parts.fields), std::move(parts.payload), std::move(held.hold));
  if (shared == nullptr)
    throw Error(ErrorCode::kInternal, str(link->who(), " has answered through memory that it was not given"));
  Cursor payload(shared->lane().find(Lane::Half::kReplies, parts.slots, parts.head.shared_bytes));
  return std::make_unique<Received>(std::move(parts.fields), std::move(payload),
                                    std::make_shared<const ReadSlots>(shared, std::move(parts.slots)));
}

// What a method throws comes as a reply: these are gRPC's words, or a server's that does not know us.
Error PendingCall::State::failure() const {
  const auto text = str(link->who(), ", method '", method, "': ");
  const auto& said = ending->status.error_message();
  switch (ending->status.error_code()) {
    case grpc::StatusCode::DEADLINE_EXCEEDED: return Error(ErrorCode::kDeadlineExceeded, str(text, "no answer in time"));
    case grpc::StatusCode::FAILED_PRECONDITION:
      return Error(ErrorCode::kFailedPrecondition, str(text, "the call was refused: ", said));
    case grpc::StatusCode::UNIMPLEMENTED:
      return Error(ErrorCode::kUnimplemented, str(text, "the server there is no task of a job: ", said));
    case grpc::StatusCode::RESOURCE_EXHAUSTED:
    case grpc::StatusCode::INVALID_ARGUMENT: return Error(ErrorCode::kInvalidArgument, str(text, said));
    case grpc::StatusCode::CANCELLED:
      if (was_cancelled) return Error(ErrorCode::kCancelled, str(text, "the call was cancelled here"));
      [[fallthrough]];
    default: return Error(ErrorCode::kUnavailable, str(text, "the server cannot be reached, or has gone: ", said));
  }
}

PendingCall::~PendingCall() {
  if (state_ == nullptr || state_->is_taken) return;
  state_->cancel();
  state_->wait_for_end();
  try {
    state_->result();  // frees what the reply holds
  } catch (const Error&) {
    // Nobody asks.
  }
}

PendingCall& PendingCall::operator=(PendingCall&& other) noexcept {
  PendingCall moved(std::move(other));
  state_.swap(moved.state_);
  return *this;
}

std::unique_ptr<Incoming> PendingCall::wait() {
  require(state_ != nullptr && !state_->is_taken, "the reply of a call can be had once, from a call that was started");
  state_->wait_for_end();
  state_->is_taken = true;
  return state_->result();
}

void PendingCall::cancel() noexcept {
  if (state_ != nullptr) state_->cancel();
}

struct RpcChannel::State {
  const std::shared_ptr<Link> link;
};

RpcChannel::RpcChannel(std::string name, const Address& address, const RpcOptions& options)
    : state_(std::make_unique<State>(State{std::make_shared<Link>(std::move(name), address, options)})) {}

RpcChannel::~RpcChannel() { state_->link->sharing.close(); }

const std::string& RpcChannel::name() const noexcept { return state_->link->name; }

bool RpcChannel::shares_memory() const { return state_->link->sharing.is_open(); }

PendingCall RpcChannel::start(const std::string& method, const Outgoing& request, const Deadline& deadline) {
  const auto& link = state_->link;
  const auto bytes = request.fields.size() + payload_bytes(request);
  if (bytes > link->options.most_bytes)
    throw Error(ErrorCode::kInvalidArgument,
                str(link->who(), ", method '", method, "': the request has ", bytes, " bytes, and a message at most ",
                    link->options.most_bytes, "; send less at a time"));
  // gRPC would send it, and a quick server answer.
  if (deadline.has_passed())
    throw Error(ErrorCode::kDeadlineExceeded, str(link->who(), ", method '", method, "': there was no time left to call"));
  const auto call = std::make_shared<PendingCall::State>(link, method, deadline);
  call->start(kMethods + method, request);
  return PendingCall(call);
}

void RpcChannel::wait_until_reachable(const Deadline& deadline) {
  const auto& link = state_->link;
  const auto say_hello = [&](const Deadline& until, bool waits) {
    const auto call = std::make_shared<PendingCall::State>(link, "hello", until);
    call->context->set_wait_for_ready(waits);
    call->start(kHello, {});
    PendingCall(call).wait();
  };
  Reminder reminder(kSayAfter);
  while (!deadline.has_passed()) {
    try {
      return say_hello(std::min(deadline, Deadline::after(kSayAfter), [](auto a, auto b) { return a.time() < b.time(); }),
                       true);
    } catch (const Error& error) {
      if (!is_retryable(error.code())) throw;
    }
    if (reminder.is_due()) log_warning(str("waiting for ", link->who()));
  }
  try {  // only a call that does not wait tells what gRPC saw
    say_hello(Deadline::after(kLastLook), false);
  } catch (const Error& error) {
    throw Error(ErrorCode::kDeadlineExceeded,
                str("not reached in time: ", error.message(), "; is it started, and is the port open?"));
  }
}

}  // namespace lockstep::ps

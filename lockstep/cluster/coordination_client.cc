#include <grpcpp/grpcpp.h>
#include <unistd.h>

#include <algorithm>
#include <condition_variable>
#include <mutex>
#include <set>
#include <utility>

#include "lockstep/base/log.h"
#include "lockstep/base/reminder.h"
#include "lockstep/base/str.h"
#include "lockstep/base/thread.h"
#include "lockstep/cluster/clock_offset.h"
#include "lockstep/cluster/coordination.grpc.pb.h"
#include "lockstep/cluster/coordination.h"
#include "lockstep/cluster/host_address.h"
#include "lockstep/cluster/lifeline.h"
#include "lockstep/cluster/rpc.h"
#include "lockstep/cluster/socket.h"

namespace lockstep {
namespace {

using std::chrono::milliseconds;
using std::chrono::nanoseconds;

constexpr milliseconds kHeartbeat(500);
constexpr milliseconds kRetry(100);
constexpr milliseconds kOneTry(5000);             // to connect; with TLS that is four times back and forth
constexpr std::size_t kLongestReason = 64 << 10;  // everybody gets it
constexpr std::chrono::seconds kSayAfter(5);      // how long a start may take before the log says for whom it waits
constexpr std::chrono::seconds kShortCall(10);    // for a call that waits for nobody
constexpr std::chrono::seconds kLastWord(1);      // a coordinator that does not answer must not keep who fails or leaves
constexpr std::chrono::seconds kOnTheWay(2);      // what a call may take beyond its wait
constexpr std::chrono::seconds kFailurePoll(20);  // one question whether anything has failed
constexpr milliseconds kReason(500);              // for the reason of the coordinator's end
constexpr std::chrono::seconds kLastLook(1);      // at why it was not reached

std::shared_ptr<grpc::Channel> open_channel(const Address& address, const TlsFiles& tls) {
  grpc::ChannelArguments arguments;
  arguments.SetMaxReceiveMessageSize(internal::kMostMessageBytes);
  arguments.SetInt(GRPC_ARG_INITIAL_RECONNECT_BACKOFF_MS, static_cast<int>(kRetry.count()));
  arguments.SetInt(GRPC_ARG_MIN_RECONNECT_BACKOFF_MS, static_cast<int>(kOneTry.count()));  // so is it named, and is no pause
  arguments.SetInt(GRPC_ARG_MAX_RECONNECT_BACKOFF_MS, 1000);
  arguments.SetInt(GRPC_ARG_ENABLE_HTTP_PROXY, 0);
  return grpc::CreateCustomChannel(str(address), internal::channel_credentials(tls), arguments);
}

bool is_port_open(const Address& address) {
  try {
    internal::Socket::connect(address, Deadline::after(kLastLook));
    return true;
  } catch (const Error&) {
    return false;
  }
}

// Why a coordinator was not reached: only a call tells what gRPC saw.
std::string why_not_reached(const std::shared_ptr<grpc::Channel>& channel, const Address& address) {
  rpc::Members answer;
  grpc::ClientContext context;
  internal::set_deadline(context, kLastLook);
  const auto status = rpc::Coordination::NewStub(channel)->List(&context, rpc::Nothing(), &answer);
  return str(status.error_message(),
             is_port_open(address)
                 ? "). The port is open: another program may listen there; and with TLS all tasks need a certificate of one "
                   "authority that names their host (LOCKSTEP_TLS_CA, LOCKSTEP_TLS_CERTIFICATE, LOCKSTEP_TLS_KEY), without it "
                   "none"
                 : "); is it started, and is the port open?");
}

void wait_for(const std::shared_ptr<grpc::Channel>& channel, const Address& address, const Task& task, nanoseconds timeout) {
  const auto deadline = Deadline::after(timeout);
  Reminder reminder(kSayAfter);
  while (channel->GetState(/*try_to_connect=*/true) != GRPC_CHANNEL_READY) {
    if (deadline.has_passed())
      throw Error(ErrorCode::kDeadlineExceeded,
                  str(task, " cannot reach the coordinator at ", address, " in ",
                      std::chrono::duration<double>(timeout).count(), " s (", why_not_reached(channel, address)));
    channel->WaitForStateChange(channel->GetState(true), std::chrono::system_clock::now() + kRetry);
    if (reminder.is_due()) log_warning(str(task, " waits for the coordinator at ", address));
  }
}

}  // namespace

struct CoordinationClient::State {
  State(const Address& coordinator, const ClusterSpec& spec, const Task& of, const CoordinationOptions& options,
        std::function<void(const Failure&)> callback);
  ~State();

  void keep_in_touch(const std::stop_token& stop);
  void watch_failures(const std::stop_token& stop);
  // A coordinator that ends because of a failure has said so before: that is what counts, though its good-bye may be here
  // first.
  void wait_for_reason();
  rpc::Admission join(const rpc::Introduction& introduction, const Deadline& deadline);
  void set_failure(const Failure& failure);
  // Makes a call that ends when the cluster has failed, or this object ends.
  using Call = std::function<grpc::Status(grpc::ClientContext&)>;
  grpc::Status call(nanoseconds timeout, const Call& make);
  void throw_failure_or(const grpc::Status& status, const std::string& what);
  rpc::Wait wait_message(const std::string& name, nanoseconds timeout) const;
  // What this task does.
  void tell(nanoseconds timeout);
  // Whether it is worth while to tell more: not after fail(), nor when the last word was not answered.
  bool is_heard() const;

  // Const after construction.
  const Task task;
  const Task leader;  // who serves
  const Address coordinator;
  const std::function<void(const Failure&)> on_failure;
  std::shared_ptr<grpc::Channel> channel;
  std::unique_ptr<rpc::Coordination::Stub> stub;
  std::uint64_t member = 0;

  // Guarded by mu.
  mutable std::mutex mu;
  std::condition_variable changed;
  Activity activity;
  bool has_news = false;  // to be told before the next heartbeat
  ClockOffset clock;      // the coordinator's
  std::optional<Failure> failure;
  std::set<grpc::ClientContext*> calls;  // under way
  bool is_ending = false;
  bool was_answered = true;  // the last tell()
  bool has_given_up = false;
  bool is_asking = true;  // the watcher asks, again and again, and is answered

  std::unique_ptr<Lifeline> lifeline;
  std::jthread heartbeat;  // the threads are last: joined first
  std::jthread watcher;
};

CoordinationClient::State::State(const Address& at, const ClusterSpec& spec, const Task& of, const CoordinationOptions& options,
                                 std::function<void(const Failure&)> callback)
    : task(of), leader{spec.has_job("chief") ? "chief" : "worker", 0}, coordinator(at), on_failure(std::move(callback)) {
  internal::require_usable(options.tls);
  channel = open_channel(at, options.tls);
  rpc::Introduction introduction;
  internal::to_message({task, options.secret, spec.to_json(), build_name(), own_host_name(), getpid()}, introduction);
  const auto admission = join(introduction, Deadline::after(options.join_timeout));
  member = admission.member();
  const auto is_gone = [this](const std::string& how) {
    set_failure({leader, ErrorCode::kUnavailable, str("the coordinator, ", leader, " at ", coordinator, ", is gone: ", how)});
  };
  lifeline = std::make_unique<Lifeline>(Address{coordinator.host, admission.lifeline_port()}, admission.ticket(),
                                        Deadline::after(kShortCall), is_gone, [this, is_gone] {
                                          wait_for_reason();
                                          is_gone("it has ended");
                                        });
  heartbeat = start_thread("lockstep:beat", [this](const std::stop_token& stop) { keep_in_touch(stop); });
  watcher = start_thread("lockstep:watch", [this](const std::stop_token& stop) { watch_failures(stop); });
}

// A coordinator that is ending its last job says so, or drops the call; it is asked again: the next one comes at the same
// address.
rpc::Admission CoordinationClient::State::join(const rpc::Introduction& introduction, const Deadline& deadline) {
  stub = rpc::Coordination::NewStub(channel);
  while (true) {
    wait_for(channel, coordinator, task, deadline.remaining());
    rpc::Admission admission;
    grpc::ClientContext context;
    internal::set_deadline(context, kShortCall);
    const auto status = stub->Join(&context, introduction, &admission);
    const bool is_ending_there =
        status.error_code() == grpc::StatusCode::UNAVAILABLE || status.error_code() == grpc::StatusCode::CANCELLED;
    if (!is_ending_there || deadline.has_passed()) {
      internal::throw_if_bad(status, str("registration at ", coordinator));
      return admission;
    }
    std::unique_lock lock(mu);
    changed.wait_for(lock, kRetry, [&] { return is_ending; });
  }
}

CoordinationClient::State::~State() {
  // Others may still wait for what this task has sent: they must know that it was.
  if (is_heard()) tell(kLastWord);
  {
    const std::lock_guard lock(mu);
    is_ending = true;
    for (auto* context : calls) context->TryCancel();
    changed.notify_all();
  }
  for (auto* thread : {&heartbeat, &watcher}) thread->request_stop();
  for (auto* thread : {&heartbeat, &watcher})
    if (thread->joinable()) thread->join();
  lifeline.reset();
}

void CoordinationClient::State::keep_in_touch(const std::stop_token& stop) {
  while (!stop.stop_requested()) {
    {
      std::unique_lock lock(mu);
      changed.wait_for(lock, kHeartbeat, [&] { return is_ending || has_news; });
      if (is_ending || failure) return;
      has_news = false;
    }
    tell(kShortCall);
  }
}

// Whether the coordinator lives is the lifeline's business.
void CoordinationClient::State::tell(nanoseconds timeout) {
  rpc::Note note;
  note.set_member(member);
  {
    const std::lock_guard lock(mu);
    note.mutable_activity()->set_step(activity.step);
    note.mutable_activity()->set_doing(activity.doing);
    note.mutable_activity()->set_calls(activity.calls);
  }
  rpc::Heard heard;
  const auto sent = ClockOffset::clock();
  const auto status = call(timeout, [&](grpc::ClientContext& context) { return stub->Tell(&context, note, &heard); });
  const std::lock_guard lock(mu);
  was_answered = status.ok();
  if (was_answered) clock.add(sent, nanoseconds(heard.clock_nanoseconds()), ClockOffset::clock());
}

bool CoordinationClient::State::is_heard() const {
  const std::lock_guard lock(mu);
  return was_answered && !has_given_up;
}

void CoordinationClient::State::watch_failures(const std::stop_token& stop) {
  while (!stop.stop_requested()) {
    rpc::Members answer;
    const auto status = call(kFailurePoll + kOnTheWay, [&](grpc::ClientContext& context) {
      return stub->AwaitFailure(&context, wait_message("", kFailurePoll), &answer);
    });
    if (status.ok() && answer.has_failure()) set_failure(internal::from_message(answer.failure()));
    std::unique_lock lock(mu);
    is_asking = status.ok();
    changed.notify_all();
    if (!status.ok()) changed.wait_for(lock, kRetry, [&] { return is_ending; });
    if (is_ending || failure) return;
  }
}

void CoordinationClient::State::wait_for_reason() {
  std::unique_lock lock(mu);
  changed.wait_for(lock, kReason, [&] { return failure || is_ending || !is_asking; });
}

grpc::Status CoordinationClient::State::call(nanoseconds timeout, const Call& make) {
  grpc::ClientContext context;
  internal::set_deadline(context, std::min<nanoseconds>(timeout, internal::kLongestWait));
  {
    const std::lock_guard lock(mu);
    if (is_ending || failure) return grpc::Status::CANCELLED;
    calls.insert(&context);
  }
  auto status = make(context);
  const std::lock_guard lock(mu);
  calls.erase(&context);
  return status;
}

void CoordinationClient::State::set_failure(const Failure& what) {
  {
    const std::lock_guard lock(mu);
    if (failure || is_ending) return;
    failure = what;
    for (auto* context : calls) context->TryCancel();  // they may wait for an answer that never comes
    changed.notify_all();
  }
  if (on_failure) on_failure(what);
}

// An answer that did not come because the coordinator died is told as its death.
void CoordinationClient::State::throw_failure_or(const grpc::Status& status, const std::string& what) {
  if (status.ok()) return;
  if (status.error_code() == grpc::StatusCode::UNAVAILABLE || status.error_code() == grpc::StatusCode::CANCELLED) {
    std::unique_lock lock(mu);
    changed.wait_for(lock, kReason + kRetry, [&] { return failure.has_value(); });  // the lifeline knows more
    if (failure) throw Error(failure->code, str(what, ": ", failure->message));
  }
  internal::throw_if_bad(status, what);
}

rpc::Wait CoordinationClient::State::wait_message(const std::string& name, nanoseconds timeout) const {
  rpc::Wait wait;
  wait.set_member(member);
  wait.set_name(name);
  wait.set_milliseconds(
      std::chrono::duration_cast<milliseconds>(std::min<nanoseconds>(timeout, internal::kLongestWait)).count());
  return wait;
}

CoordinationClient::CoordinationClient(const Address& coordinator, const ClusterSpec& spec, const Task& task,
                                       const CoordinationOptions& options, std::function<void(const Failure&)> on_failure)
    : state_(std::make_unique<State>(coordinator, spec, task, options, std::move(on_failure))) {}

CoordinationClient::~CoordinationClient() = default;

void CoordinationClient::put(const std::string& key, const std::string& value) {
  rpc::Value message;
  message.set_key(key);
  message.set_value(value);
  message.set_member(state_->member);
  rpc::Nothing nothing;
  const auto status =
      state_->call(kShortCall, [&](grpc::ClientContext& context) { return state_->stub->Put(&context, message, &nothing); });
  state_->throw_failure_or(status, str("put '", key, "'"));
}

std::string CoordinationClient::get(const std::string& key, nanoseconds timeout) {
  rpc::Value value;
  const auto wait = state_->wait_message(key, timeout);
  const auto status = state_->call(milliseconds(wait.milliseconds()) + kOnTheWay,
                                   [&](grpc::ClientContext& context) { return state_->stub->Get(&context, wait, &value); });
  state_->throw_failure_or(status, str("get '", key, "'"));
  return value.value();
}

void CoordinationClient::barrier(const std::string& name, nanoseconds timeout) {
  rpc::Nothing nothing;
  const auto wait = state_->wait_message(name, timeout);
  const auto status = state_->call(milliseconds(wait.milliseconds()) + kOnTheWay, [&](grpc::ClientContext& context) {
    return state_->stub->Barrier(&context, wait, &nothing);
  });
  state_->throw_failure_or(status, str(state_->task));
}

std::chrono::nanoseconds CoordinationClient::clock_offset() const {
  const std::lock_guard lock(state_->mu);
  return state_->clock.value();
}

void CoordinationClient::set_activity(const Activity& activity) {
  const std::lock_guard lock(state_->mu);
  // The first word is said at once: who is lost or stopped soon after it had begun.
  if (state_->activity.step < 0 && activity.step >= 0) {
    state_->has_news = true;
    state_->changed.notify_all();
  }
  state_->activity = activity;
}

void CoordinationClient::fail(ErrorCode code, const std::string& message) {
  rpc::Report report;
  report.set_member(state_->member);
  report.set_code(internal::code_of(code));
  report.set_message(message.substr(0, kLongestReason));
  rpc::Nothing nothing;
  {
    const std::lock_guard lock(state_->mu);
    state_->has_given_up = true;
  }
  // Who cannot be told hears it from the lifeline.
  state_->call(kLastWord, [&](grpc::ClientContext& context) { return state_->stub->Fail(&context, report, &nothing); });
}

std::optional<Failure> CoordinationClient::failure() const {
  const std::lock_guard lock(state_->mu);
  return state_->failure;
}

ClusterView inspect_cluster(const Address& coordinator, nanoseconds timeout, const TlsFiles& tls) {
  const auto stub = rpc::Coordination::NewStub(open_channel(coordinator, tls));
  rpc::Members answer;
  grpc::ClientContext context;
  internal::set_deadline(context, timeout);
  internal::throw_if_bad(stub->List(&context, rpc::Nothing(), &answer), str("the coordinator at ", coordinator));
  ClusterView view;
  for (const auto& member : answer.members())
    view.members.push_back({internal::from_message(member.introduction()),
                            0,
                            {member.activity().step(), member.activity().doing(), member.activity().calls()},
                            std::chrono::steady_clock::now() - milliseconds(member.heard_milliseconds_ago()),
                            member.has_left()});
  if (answer.has_failure()) view.failure = internal::from_message(answer.failure());
  return view;
}

}  // namespace lockstep

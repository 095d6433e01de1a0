#include "lockstep/ps/closure_service.h"

#include <condition_variable>
#include <mutex>
#include <stop_token>
#include <thread>
#include <utility>

#include "lockstep/base/first_error.h"
#include "lockstep/base/random.h"
#include "lockstep/base/str.h"
#include "lockstep/base/thread.h"
#include "lockstep/ps/fields.h"
#include "lockstep/ps/remote_function.h"
#include "lockstep/ps/task_error.h"

namespace lockstep::ps {
namespace {

using closures::Ending;
using closures::Outcome;
using closures::Work;
using Clock = std::chrono::steady_clock;

// A batch with its request, on its way through the thread that runs it.
struct Job {
  closures::Batch batch;
  Incoming* request = nullptr;
  closures::Outcomes outcomes = {};
  std::vector<Piece> payload = {};
  std::uint64_t result_bytes = 0;
};

Outcome failed(ErrorCode code, std::string text, std::string task = "") {
  Outcome outcome;
  outcome.ending = Ending::kFailed;
  outcome.code = code;
  outcome.text = std::move(text);
  outcome.task = std::move(task);
  return outcome;
}

// Throws kInvalidArgument unless the parts' bytes are those that came.
void require_payload(const closures::Batch& batch, std::uint64_t bytes) {
  for (const auto* const works : {&batch.creations, &batch.calls})
    for (const auto& work : *works) {
      require(work.payload_bytes <= bytes, "a batch of closures has fewer bytes than it says");
      bytes -= work.payload_bytes;
    }
  require(bytes == 0, "a batch of closures has more bytes than it says");
}

// The worker itself ended them, not the coordinator: another worker can run them.
void withdraw_interrupted(closures::Outcomes& outcomes) {
  for (auto& outcome : outcomes.calls)
    if (outcome.ending == Ending::kFailed && outcome.code == ErrorCode::kCancelled) outcome = {};
}

// What the exception being handled says.
Outcome failure() {
  try {
    throw;
  } catch (const TaskError& error) {
    return failed(error.code(), error.message(), error.task());
  } catch (const Error& error) {
    return failed(error.code(), error.message());
  } catch (...) {
    return failed(ErrorCode::kInternal, describe(std::current_exception()));
  }
}

}  // namespace

struct ClosureService::State {
  State(WorkerTask task, const ClosureServiceOptions& given) : options(given), context(std::move(task)) {}

  closures::Welcome hello(const closures::Hello& from);
  void run(Incoming& request, Outgoing& reply);
  void cancel(const closures::Cancel& which);
  closures::Status status() const;
  void stop();

  // On the thread.
  void work(const std::stop_token& stopped);
  void run_job(Job& job);
  void forget_last_coordinator(const closures::Batch& batch);
  Outcome create(const Work& work, Job& job);
  Outcome call(const Work& work, Job& job);
  template <typename Do>
  Outcome with_arguments(const Work& work, Job& job, Do run);

  bool admit(Job& given, std::unique_lock<std::mutex>& lock);
  void cancel_running(std::unique_lock<std::mutex>& lock);
  void require_running() const;  // with mu held

  // Const after construction.
  const ClosureServiceOptions options;
  const std::uint64_t incarnation = unguessable_number();

  // Guarded by mu.
  mutable std::mutex mu;
  std::condition_variable_any changed;
  std::uint64_t coordinator = 0;
  std::uint64_t valid_from = 0;  // batches with smaller numbers are cancelled
  Job* job = nullptr;            // what the thread works on
  std::stop_source cancel_job;
  bool is_stopped = false;
  std::string running;  // the function's name; empty: none
  Clock::time_point running_since;
  std::uint64_t finished = 0, failures = 0, resources = 0, waiting = 0;

  // Used only on the thread.
  WorkerContext context;
  std::uint64_t after_this = 0;  // calls of the job that come after the one that runs
  std::uint64_t served = 0;      // the coordinator whose resources there are

  std::jthread thread;  // last: joined first
};

closures::Welcome ClosureService::State::hello(const closures::Hello& from) {
  std::unique_lock lock(mu);
  require_running();
  coordinator = from.coordinator;
  valid_from = from.next_batch;
  if (job != nullptr) cancel_running(lock);  // its coordinator has lost it, or is another one
  return {incarnation};
}

// A closure may have callbacks of its own there: not under the lock.
void ClosureService::State::cancel_running(std::unique_lock<std::mutex>& lock) {
  auto running_job = cancel_job;
  lock.unlock();
  running_job.request_stop();
}

void ClosureService::State::cancel(const closures::Cancel& which) {
  std::unique_lock lock(mu);
  if (which.coordinator != coordinator) return;
  valid_from = std::max(valid_from, which.batch + 1);
  if (job != nullptr && job->batch.number <= which.batch) cancel_running(lock);
}

// Makes `given` the job of the thread, when it is its turn. False: it is not run.
bool ClosureService::State::admit(Job& given, std::unique_lock<std::mutex>& lock) {
  const auto is_ours = [&] { return given.batch.coordinator == coordinator && given.batch.incarnation == incarnation; };
  if (!is_ours())
    throw Error(ErrorCode::kAborted, str(context.task_name(), " was started again, or serves another coordinator"));
  const bool is_free = changed.wait_until(lock, Clock::now() + options.patience, [&] { return job == nullptr || is_stopped; });
  require_running();
  if (!is_free || !is_ours()) return false;
  cancel_job = std::stop_source();
  if (given.batch.number < valid_from) cancel_job.request_stop();
  job = &given;
  changed.notify_all();
  return true;
}

void ClosureService::State::run(Incoming& request, Outgoing& reply) {
  Job given{from_bytes<closures::Batch>(request.fields()), &request};
  require_payload(given.batch, request.left());
  given.outcomes.creations.resize(given.batch.creations.size());
  given.outcomes.calls.resize(given.batch.calls.size());
  {
    std::unique_lock lock(mu);
    // The thread ends every job; how long that takes is the closures' own affair.
    if (admit(given, lock)) changed.wait(lock, [&] { return job != &given; });
    if (is_stopped) withdraw_interrupted(given.outcomes);
  }
  reply.fields = to_bytes(given.outcomes);
  reply.payload = std::move(given.payload);
}

void ClosureService::State::require_running() const {
  if (is_stopped) throw Error(ErrorCode::kUnavailable, str(context.task_name(), " is ending"));
}

void ClosureService::State::stop() {
  std::unique_lock lock(mu);
  is_stopped = true;
  changed.notify_all();
  cancel_running(lock);
}

closures::Status ClosureService::State::status() const {
  const std::lock_guard lock(mu);
  closures::Status status{incarnation, "", 0, finished, failures, resources, waiting};
  if (running.empty()) return status;
  status.function = readable_name(running);
  status.nanoseconds = static_cast<std::uint64_t>(std::chrono::nanoseconds(Clock::now() - running_since).count());
  return status;
}

void ClosureService::State::work(const std::stop_token& stopped) {
  std::unique_lock lock(mu);
  while (changed.wait(lock, stopped, [&] { return job != nullptr; })) {
    Job& mine = *job;
    context.set_cancelled(cancel_job.get_token());
    lock.unlock();
    run_job(mine);
    lock.lock();
    resources = context.resources().size();
    waiting = 0;
    job = nullptr;
    changed.notify_all();
  }
}

void ClosureService::State::forget_last_coordinator(const closures::Batch& batch) {
  if (std::exchange(served, batch.coordinator) != batch.coordinator) context.resources().clear();
}

void ClosureService::State::run_job(Job& job) {
  forget_last_coordinator(job.batch);
  after_this = job.batch.calls.size();
  for (const auto id : job.batch.drops) context.resources().erase(id);
  for (std::size_t i = 0; i < job.batch.creations.size(); ++i) {
    if (context.is_cancelled()) break;
    job.outcomes.creations[i] = create(job.batch.creations[i], job);
  }
  const auto start = Clock::now();
  for (std::size_t i = 0; i < job.batch.calls.size(); ++i) {
    if (context.is_cancelled()) {
      job.outcomes.calls[i] = failed(ErrorCode::kCancelled, "the closure was cancelled before it began");
      continue;
    }
    if (i > 0 && (Clock::now() - start > options.batch_time || job.result_bytes > options.batch_bytes)) break;
    after_this = job.batch.calls.size() - i - 1;
    job.outcomes.calls[i] = call(job.batch.calls[i], job);
  }
  job.outcomes.nanoseconds = static_cast<std::uint64_t>(std::chrono::nanoseconds(Clock::now() - start).count());
}

// run(function, decoder) makes an outcome. What it left of the payload is passed over: the next one's comes after it.
template <typename Do>
Outcome ClosureService::State::with_arguments(const Work& work, Job& job, Do run) {
  {
    const std::lock_guard lock(mu);
    running = work.function;
    running_since = Clock::now();
    waiting = after_this;
  }
  Decoder decoder(work.arguments, *job.request, work.payload_bytes, &context);
  Outcome outcome;
  try {
    outcome = run(FunctionRegistry::global().find(work.function), decoder);
  } catch (...) {
    outcome = failure();
  }
  decoder.skip_payload();
  const std::lock_guard lock(mu);
  running.clear();
  return outcome;
}

Outcome ClosureService::State::create(const Work& work, Job& job) {
  // There already: the answer to the first request was lost on the way.
  const bool is_there = context.resources().contains(work.id);
  Resource made;
  auto outcome = with_arguments(work, job, [&](const RegisteredFunction& function, Decoder& decoder) {
    Outcome done;
    done.ending = Ending::kDone;
    if (is_there) return done;
    if (!function.create) throw Error(ErrorCode::kInvalidArgument, "a function without a result makes no per-worker value");
    made = function.create(decoder);
    return done;
  });
  if (is_there) return outcome;
  if (outcome.ending == Ending::kFailed) made.failure = std::make_exception_ptr(Error(outcome.code, outcome.text));
  context.resources()[work.id] = std::move(made);
  return outcome;
}

Outcome ClosureService::State::call(const Work& work, Job& job) {
  auto outcome = with_arguments(work, job, [&](const RegisteredFunction& function, Decoder& decoder) {
    if (!function.call) throw Error(ErrorCode::kInvalidArgument, "the result of the function cannot be sent");
    Encoder encoder;
    function.call(decoder, encoder);
    Outcome done;
    done.ending = Ending::kDone;
    done.payload_bytes = encoder.payload_bytes();
    done.result = encoder.take_fields();
    job.result_bytes += done.payload_bytes + done.result.size();
    for (auto& piece : encoder.take_payload()) job.payload.push_back(std::move(piece));
    return done;
  });
  const std::lock_guard lock(mu);
  ++(outcome.ending == Ending::kFailed ? failures : finished);
  return outcome;
}

ClosureService::ClosureService(WorkerTask task, const ClosureServiceOptions& options)
    : state_(std::make_unique<State>(std::move(task), options)) {
  FunctionRegistry::global().require_sound();
  state_->thread = start_thread("lockstep:work", [state = state_.get()](const std::stop_token& stop) {
    const auto entered = state->options.enter ? state->options.enter() : nullptr;
    state->work(stop);
  });
}

ClosureService::~ClosureService() { stop(); }

WorkerContext& ClosureService::context() { return state_->context; }

closures::Status ClosureService::status() const { return state_->status(); }

void ClosureService::stop() { state_->stop(); }

std::map<std::string, Method> ClosureService::methods() {
  auto* const state = state_.get();
  const auto answer = []<typename Request>(auto serve) {
    return [serve](Incoming& request, Outgoing& reply) { reply.fields = serve(from_bytes<Request>(request.fields())); };
  };
  std::map<std::string, Method> methods;
  methods[closures::kHello] = {
      answer.operator()<closures::Hello>([state](const closures::Hello& from) { return to_bytes(state->hello(from)); }),
      HandlerKind::kQuick};
  methods[closures::kCancel] = {answer.operator()<closures::Cancel>([state](const closures::Cancel& which) {
                                  state->cancel(which);
                                  return std::string();
                                }),
                                HandlerKind::kQuick};
  methods[closures::kStatus] = {[state](Incoming&, Outgoing& reply) { reply.fields = to_bytes(state->status()); },
                                HandlerKind::kQuick};
  methods[closures::kRun] = {[state](Incoming& request, Outgoing& reply) { state->run(request, reply); },
                             HandlerKind::kMayWait};
  return methods;
}

}  // namespace lockstep::ps

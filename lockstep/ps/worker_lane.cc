#include "lockstep/ps/worker_lane.h"

#include <algorithm>
#include <utility>

#include "lockstep/base/first_error.h"
#include "lockstep/base/log.h"
#include "lockstep/base/on_exit.h"
#include "lockstep/base/random.h"
#include "lockstep/base/str.h"
#include "lockstep/base/thread.h"
#include "lockstep/ps/fields.h"

namespace lockstep::ps {
namespace {

using closures::Ending;
using Clock = std::chrono::steady_clock;

constexpr std::size_t kMostClosures = 64;
constexpr std::size_t kMostCreated = std::size_t{256} << 20;  // bytes for per-worker values that are made with one message
constexpr std::chrono::milliseconds kLookAround(200);         // how soon a thread that waits sees that it is to end
constexpr std::chrono::seconds kAnswer(10);                   // to what is answered at once
constexpr std::chrono::seconds kAtOnce(1);                    // so soon after one another

ScheduledClosure& scheduled(const ClosurePtr& closure) { return static_cast<ScheduledClosure&>(*closure); }

// "; it had 3 closures: 'train', 'evaluate'", or nothing.
std::string what_it_had(const std::vector<ClosurePtr>& closures) {
  if (closures.empty()) return "";
  std::set<std::string> functions;
  for (const auto& closure : closures) functions.insert(str("'", scheduled(closure).call.work.function, "'"));
  return str("; it had ", closures.size(), closures.size() == 1 ? " closure: " : " closures: ", join(", ", functions));
}

ErrorCode code_of(const std::exception_ptr& error) {
  try {
    std::rethrow_exception(error);
  } catch (const Error& known) {
    return known.code();
  } catch (...) {
    return ErrorCode::kInternal;
  }
}

// Null: it has arrived. Otherwise why not.
std::exception_ptr read_result(ResultSlot& slot, const closures::Outcome& outcome, Incoming& reply) noexcept try {
  Decoder decoder(outcome.result, reply, outcome.payload_bytes);
  std::exception_ptr failure;
  try {
    slot.read(decoder);
    decoder.require_end();
  } catch (...) {
    failure = std::current_exception();
  }
  decoder.skip_payload();
  if (!failure) slot.set_ready();
  return failure;
} catch (...) {
  return std::current_exception();
}

void append(closures::Batch& batch, std::vector<closures::Work> closures::Batch::*to, const Call& call, Outgoing& request) {
  (batch.*to).push_back(call.work);
  request.payload.insert(request.payload.end(), call.payload.begin(), call.payload.end());
}

std::size_t bytes_of(const ResourceTable::Changes& changes) {
  std::size_t all = 0;
  for (const auto& record : changes.creations) all += record->call.work.payload_bytes;
  return all;
}

}  // namespace

LaneShared::LaneShared(const CoordinatorOptions& given, std::vector<std::string> workers)
    : options(given),
      coordinator(unguessable_number()),
      queue(given.queue_size, given.max_staleness),
      rules(given.environment, static_cast<int>(workers.size())),
      attendance(workers) {
  require(given.silence_timeout.count() > 0 && given.closure_timeout.count() > 0 && given.workers_timeout.count() > 0 &&
              given.most_losses > 0,
          "CoordinatorOptions: timeouts and most_losses must be above 0");
}

std::size_t BatchSize::closures() const noexcept {
  return std::clamp<std::size_t>(kTarget / std::max(of_one_, std::chrono::nanoseconds(1)), 1, kMostClosures);
}

void BatchSize::learn(std::size_t closures, std::chrono::nanoseconds took) noexcept {
  if (closures > 0) of_one_ = (of_one_ + took / closures) / 2;
}

WorkerLane::WorkerLane(WorkerLink worker, int index, LaneShared& shared)
    : worker_(std::move(worker)), index_(index), shared_(shared) {
  thread_ = start_thread(str("lockstep:lane", index), [this](const std::stop_token& stop) { work(stop); });
}

WorkerLane::~WorkerLane() {
  request_stop();
  give_up();
}

void WorkerLane::finish(const Deadline& deadline) {
  {
    std::unique_lock lock(mu_);
    changed_.wait_until(lock, deadline.time(), [&] { return !in_call_; });
  }
  give_up();
}

void WorkerLane::give_up() noexcept {
  const std::lock_guard lock(mu_);
  is_over_ = true;
  call_.cancel();
  if (question_) question_->cancel();
}

void WorkerLane::ask_for_sign() {
  const auto patience = shared_.options.silence_timeout / 2;
  const std::lock_guard lock(mu_);
  if (is_over_ || !in_call_ || Clock::now() - *in_call_ < patience) return;
  asked_in_ = *in_call_;
  question_.emplace(worker_.channel->start(closures::kStatus, {}, Deadline::after(patience)));
}

void WorkerLane::hear_sign() {
  {
    const std::lock_guard lock(mu_);
    if (!question_) return;
  }
  bool is_alive = true;
  try {
    question_->wait();  // only this thread makes and ends it; others may cancel it
  } catch (const Error& error) {
    is_alive = error.code() == ErrorCode::kCancelled;
  }
  const std::lock_guard lock(mu_);
  question_.reset();
  if (!is_alive && in_call_ == asked_in_) call_.cancel();
}

void WorkerLane::work(const std::stop_token& stop) {
  wait_to_start(stop);
  while (!stop.stop_requested()) {
    if (!is_connected_ && !connect()) continue;
    const auto taken = shared_.queue.get({.closures = batch_size_.closures()}, Deadline::after(std::chrono::seconds(1)));
    if (!taken.closures.empty() || shared_.resources->version() != version_) run(taken);
  }
}

void WorkerLane::wait_to_start(const std::stop_token& stop) {
  const auto delay = shared_.rules.start_delay(index_);
  if (delay.count() <= 0) return;
  std::unique_lock lock(mu_);
  std::condition_variable_any stopped;
  stopped.wait_for(lock, stop, delay, [] { return false; });
}

bool WorkerLane::connect() try {
  worker_.channel->wait_until_reachable(Deadline::after(kLookAround));
  const Outgoing hello{to_bytes(closures::Hello{shared_.coordinator, batch_ + 1})};
  const auto reply = call(closures::kHello, hello, Deadline::after(kAnswer), {});
  const auto incarnation = from_bytes<closures::Welcome>(reply->fields()).incarnation;
  if (std::exchange(incarnation_, incarnation) != incarnation) there_.clear();
  version_ = ~shared_.resources->version();  // what was on its way when the worker was lost is not known
  is_connected_ = true;
  shared_.attendance.arrive(worker_.name);
  return true;
} catch (const Error& error) {
  const auto deserted = shared_.attendance.deserted_for();
  if (error.code() == ErrorCode::kFailedPrecondition || error.code() == ErrorCode::kUnimplemented) {
    // It is there, and refuses us, or is no worker: that does not mend itself.
    log_once(LogLevel::kWarning, str(worker_.name, " cannot be used: ", error.what()));
    shared_.queue.abandon(std::current_exception());
  } else if (deserted > shared_.options.workers_timeout) {
    shared_.queue.abandon(std::make_exception_ptr(
        Error(ErrorCode::kUnavailable, str("no worker has been there for ", std::chrono::duration<double>(deserted).count(),
                                           " s, ", shared_.attendance.missing(), ": ", error.message()))));
  }
  shared_.attendance.remind();
  std::unique_lock lock(mu_);
  changed_.wait_for(lock, kLookAround, [&] { return is_over_; });
  return false;
}

void WorkerLane::run(const Taken& taken) {
  version_ = shared_.resources->version();
  auto changes = shared_.resources->changes(there_);
  if (taken.closures.empty() && changes.creations.empty() && changes.drops.empty()) return;
  std::unique_ptr<Incoming> reply;
  std::exception_ptr failure;
  try {
    while (changes.creations.size() > 1 && bytes_of(changes) > kMostCreated) {
      const ResourceTable::Changes first{{changes.creations.front()}, std::exchange(changes.drops, {})};
      settle({}, first, *send({}, first));
      changes.creations.erase(changes.creations.begin());
    }
    reply = send(taken, changes);
    settle(taken, changes, *reply);
  } catch (...) {
    failure = std::current_exception();
  }
  if (failure) on_failed_call(taken, failure);
}

std::unique_ptr<Incoming> WorkerLane::send(const Taken& taken, const ResourceTable::Changes& changes) {
  closures::Batch batch{shared_.coordinator, incarnation_, ++batch_, changes.drops};
  Outgoing request;
  for (const auto& record : changes.creations) append(batch, &closures::Batch::creations, record->call, request);
  for (const auto& closure : taken.closures) append(batch, &closures::Batch::calls, scheduled(closure).call, request);
  request.fields = to_bytes(batch);
  return call(closures::kRun, request, Deadline::after(shared_.options.closure_timeout), taken.cancelled);
}

std::unique_ptr<Incoming> WorkerLane::call(const char* method, const Outgoing& request, const Deadline& deadline,
                                           const std::stop_token& cancelled) {
  {
    const std::lock_guard lock(mu_);
    if (is_over_) throw Error(ErrorCode::kCancelled, "the coordinator has ended");
    call_ = worker_.channel->start(method, request, deadline);
    in_call_ = Clock::now();
  }
  const OnExit at_the_end([&] {
    std::vector<PendingCall> ended;  // not under the lock: it may take a while when the worker has vanished
    const std::lock_guard lock(mu_);
    ended.swap(cancellations_);
    in_call_.reset();
    changed_.notify_all();
  });
  const std::stop_callback on_cancel(cancelled, [this, batch = batch_] { cancel_on_worker(batch); });
  return call_.wait();
}

void WorkerLane::cancel_on_worker(std::uint64_t batch) noexcept try {
  const Outgoing request{to_bytes(closures::Cancel{shared_.coordinator, batch})};
  auto cancellation = worker_.channel->start(closures::kCancel, request, Deadline::after(kAnswer));
  const std::lock_guard lock(mu_);
  cancellations_.push_back(std::move(cancellation));
} catch (const std::exception& error) {
  log_warning(str("closures on ", worker_.name, " could not be cancelled, and are waited for: ", error.what()));
}

void WorkerLane::settle(const Taken& taken, const ResourceTable::Changes& changes, Incoming& reply) {
  const auto outcomes = from_bytes<closures::Outcomes>(reply.fields());
  if (outcomes.calls.size() != taken.closures.size() || outcomes.creations.size() != changes.creations.size())
    throw Error(ErrorCode::kInternal, str(worker_.name, " answered for another number of closures"));
  for (const auto id : changes.drops) there_.erase(id);
  for (std::size_t i = 0; i < changes.creations.size(); ++i) {
    const auto& made = outcomes.creations[i];
    if (made.ending == Ending::kNotRun) version_ = ~version_;
    else there_.insert(changes.creations[i]->id);
    if (made.ending == Ending::kFailed)
      log_info(str("a per-worker value could not be made on ", worker_.name, ": ", made.text));
  }
  std::size_t finished = 0, ran = 0;
  std::vector<ClosurePtr> back;
  std::vector<std::exception_ptr> failures;
  for (std::size_t i = 0; i < taken.closures.size(); ++i) {
    const auto& outcome = outcomes.calls[i];
    auto& slot = *scheduled(taken.closures[i]).slot;
    std::exception_ptr failure;
    if (outcome.ending != Ending::kNotRun) ++ran;
    if (outcome.ending == Ending::kDone) {
      failure = read_result(slot, outcome, reply);
      if (!failure) ++finished;
    } else if (outcome.ending == Ending::kFailed) {
      failure = shared_.rules.judge(
          outcome, str("closure '", scheduled(taken.closures[i]).call.work.function, "', run on ", worker_.name));
    }
    if (failure) {
      shared_.queue.note_failure(failure);
      slot.set_error(failure);
      failures.push_back(failure);
    } else if (outcome.ending != Ending::kDone) {
      back.push_back(taken.closures[i]);
    }
  }
  batch_size_.learn(ran, std::chrono::nanoseconds(outcomes.nanoseconds));
  shared_.queue.mark_finished(finished, taken.began);
  if (!back.empty()) shared_.queue.put_back(back, taken.began);
  for (auto& failure : failures) shared_.queue.mark_failed(std::move(failure), taken.began);
}

void WorkerLane::on_failed_call(const Taken& taken, const std::exception_ptr& error) {
  version_ = ~version_;  // what should be there was maybe not made
  switch (code_of(error)) {
    case ErrorCode::kUnavailable: lose(taken, describe(error)); return hand_on(taken, describe(error));
    case ErrorCode::kAborted:
    case ErrorCode::kCancelled: lose(taken, describe(error)); return shared_.queue.put_back(taken.closures, taken.began);
    case ErrorCode::kDeadlineExceeded:
      lose(taken, describe(error));
      return shared_.rules.forgives_timeout() ? shared_.queue.put_back(taken.closures, taken.began) : fail(taken, error);
    default:
      if (taken.closures.size() <= 1) return fail(taken, error);
      batch_size_.one_at_a_time();  // to see whose fault it is
      return shared_.queue.put_back(taken.closures, taken.began);
  }
}

void WorkerLane::lose(const Taken& taken, const std::string& why) {
  is_connected_ = false;
  {
    const std::lock_guard lock(mu_);
    if (is_over_) return;
  }
  shared_.attendance.leave(worker_.name, why + what_it_had(taken.closures));
}

void WorkerLane::hand_on(const Taken& taken, const std::string& why) {
  std::vector<ClosurePtr> back;
  for (const auto& closure : taken.closures) {
    auto& one = scheduled(closure);
    const auto now = Clock::now();
    if (one.losses == 0 || now - one.lost_at > kAtOnce) ++one.losses, one.lost_at = now;
    if (one.losses < shared_.options.most_losses) {
      back.push_back(closure);
      continue;
    }
    const auto text =
        str("closure '", one.call.work.function, "': workers were lost ", one.losses, " times while they had it, the last one ",
            worker_.name, " (", why, "); it is not given to another (CoordinatorOptions::most_losses)");
    fail_one(closure, std::make_exception_ptr(Error(ErrorCode::kUnavailable, text)), taken.began);
  }
  if (!back.empty()) shared_.queue.put_back(back, taken.began);
}

void WorkerLane::fail(const Taken& taken, const std::exception_ptr& error) {
  if (taken.closures.empty()) log_warning(str("per-worker values could not be made on ", worker_.name, ": ", describe(error)));
  for (const auto& closure : taken.closures) fail_one(closure, error, taken.began);
}

void WorkerLane::fail_one(const ClosurePtr& closure, const std::exception_ptr& error, std::uint64_t began) {
  shared_.queue.note_failure(error);
  scheduled(closure).slot->set_error(error);
  shared_.queue.mark_failed(error, began);
}

}  // namespace lockstep::ps

#include "lockstep/ps/calls.h"

#include <algorithm>
#include <condition_variable>
#include <deque>
#include <map>

#include "lockstep/base/random.h"
#include "lockstep/base/str.h"

namespace lockstep::ps {
namespace {

using std::chrono::milliseconds;

// A call and its tries.
struct Try {
  ServerCall* call;
  int tries = 0;
  std::unique_ptr<CallTarget::Pending> pending = nullptr;
  std::optional<Error> last_error = std::nullopt;
};

// Whether an error says that the server is not there, or has lost something, and not what is wrong with the request.
bool is_about_server(ErrorCode code) {
  return code == ErrorCode::kUnavailable || code == ErrorCode::kDeadlineExceeded || code == ErrorCode::kAborted ||
         code == ErrorCode::kCancelled;
}

TaskError named(const Error& error, const Link& link) {
  const auto text = error.message();
  return {error.code(), is_about_server(error.code()) ? link.name() : "",
          text.find(link.name()) == std::string::npos ? str(link.name(), ": ", text) : text};
}

// A call that could not even be started.
struct NotStarted final : CallTarget::Pending {
  explicit NotStarted(Error why) : error(std::move(why)) {}
  std::unique_ptr<Incoming> wait() override { throw Error(error); }
  const Error error;
};

std::unique_ptr<CallTarget::Pending> start(const ServerCall& call, const Deadline& deadline) {
  try {
    return call.link->target().start(call.method, call.request, deadline);
  } catch (const Error& error) {
    return std::make_unique<NotStarted>(error);
  }
}

// Nobody wakes it.
void pause(int tries, const Deadline& deadline) {
  constexpr milliseconds kFirst(5);
  constexpr milliseconds kLongest(500);
  std::mutex mu;
  std::condition_variable never;
  std::unique_lock lock(mu);
  const auto length = std::min<std::chrono::nanoseconds>(kFirst * (1 << std::min(tries, 8)), kLongest);
  never.wait_for(lock, std::min(length, std::max(deadline.remaining(), std::chrono::nanoseconds(0))), [] { return false; });
}

// Waits for the answer. True: it must be tried again.
bool must_try_again(Try& one, const Deadline& deadline) {
  auto& call = *one.call;
  try {
    const auto pending = std::move(one.pending);
    const auto reply = pending->wait();
    if (call.on_reply != nullptr) call.on_reply(*reply);
    return false;
  } catch (const PsUnavailable& error) {
    call.error.emplace(error);
    call.is_for_good = true;
    return false;
  } catch (const Error& error) {
    ++one.tries;
    const bool may_pass = error.code() == ErrorCode::kUnavailable || error.code() == ErrorCode::kDeadlineExceeded;
    if (!may_pass) {
      call.error.emplace(named(error, *call.link));
      return false;
    }
    // A last try that had hardly any time says nothing about the server: the one before it does.
    const bool is_out_of_time = deadline.has_passed() && error.code() == ErrorCode::kDeadlineExceeded && one.last_error;
    if (!is_out_of_time) one.last_error.emplace(error);
    if (!deadline.has_passed()) return true;
    call.error.emplace(one.last_error->code(), call.link->name(),
                       str(call.link->name(), ": ", call.method, " has no answer after ", one.tries,
                           one.tries == 1 ? " try" : " tries", "; the last: ", one.last_error->message()));
    return false;
  }
}

}  // namespace

Link::Link(std::shared_ptr<CallTarget> target) : target_(std::move(target)), client_(unguessable_number()) {}

std::vector<Link::Ticket> Link::take(std::size_t count, const Deadline& deadline) {
  std::vector<Ticket> tickets;
  tickets.reserve(count);
  std::unique_lock lock(mu_);
  const auto has_room = [&] { return unanswered_.empty() || last_ + count - *unanswered_.begin() < kMostUnanswered; };
  if (!answered_.wait_until(lock, deadline.time(), has_room))
    throw Error(ErrorCode::kDeadlineExceeded, str(name(), ": request ", *unanswered_.begin(), " has no answer, and ", last_,
                                                  " were sent; no more until it has"));
  for (; tickets.size() < count; unanswered_.insert(last_)) tickets.emplace_back(*this, ++last_);
  return tickets;
}

Link::Ticket::~Ticket() {
  if (link_ == nullptr) return;
  const std::lock_guard lock(link_->mu_);
  link_->unanswered_.erase(sequence_);
  link_->answered_.notify_all();
}

Sender Link::Ticket::sender() const {
  const std::lock_guard lock(link_->mu_);
  return {link_->client_, sequence_, *link_->unanswered_.begin()};
}

void make_calls(std::vector<ServerCall>& calls, const CallOptions& options, const Deadline& deadline) {
  std::map<Link*, std::deque<Try>> waiting;
  std::map<Link*, int> busy;
  std::deque<Try> started;
  for (auto& call : calls) waiting[call.link].push_back({&call});
  for (;;) {
    for (auto& [link, tries] : waiting) {
      for (; !tries.empty() && busy[link] < options.in_flight; ++busy[link]) {
        auto one = std::move(tries.front());
        tries.pop_front();
        const auto limit = std::clamp(deadline.remaining(), std::chrono::nanoseconds(0), options.one_try);
        one.pending = start(*one.call, Deadline::after(limit));
        started.push_back(std::move(one));
      }
    }
    if (started.empty()) return;
    auto one = std::move(started.front());
    started.pop_front();
    const bool again = must_try_again(one, deadline);
    --busy[one.call->link];
    if (!again) continue;
    pause(one.tries, deadline);
    waiting[one.call->link].push_front(std::move(one));
  }
}

void throw_error(const TaskError& error) {
  if (error.task().empty()) throw Error(error);
  throw TaskError(error);
}

void throw_if_any_failed(const std::vector<ServerCall>& calls) {
  for (const auto& call : calls) {
    if (call.is_for_good) throw PsUnavailable(call.error->task(), call.error->message());
    if (call.error) throw_error(*call.error);
  }
}

}  // namespace lockstep::ps

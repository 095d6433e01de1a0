#include "lockstep/cluster/members.h"

#include <algorithm>

#include "lockstep/base/random.h"
#include "lockstep/base/str.h"
#include "lockstep/cluster/secret.h"

namespace lockstep {
namespace {

using std::chrono::duration;

double seconds_since(std::chrono::steady_clock::time_point then) {
  return duration<double>(std::chrono::steady_clock::now() - then).count();
}

std::string shortened(double seconds) { return str(static_cast<std::int64_t>(seconds * 10) / 10.0, " s"); }

constexpr std::chrono::seconds kGoodbyeOnTheWay(2);

}  // namespace

Members::Members(std::vector<Task> expected, std::string secret, std::string spec, std::string build)
    : expected_(std::move(expected)), secret_(std::move(secret)), spec_(std::move(spec)), build_(std::move(build)) {}

std::uint64_t Members::join(const Introduction& introduction) {
  const auto refuse = [&](const std::string& why) {
    return Error(ErrorCode::kFailedPrecondition,
                 str("the cluster does not admit ", introduction.task, " on host '", introduction.host, "': ", why));
  };
  std::unique_lock lock(mu_);
  if (!internal::is_same_secret(introduction.secret, secret_))
    throw refuse("its job secret is another one; start all tasks with the same LOCKSTEP_JOB_SECRET");
  if (introduction.build != build_)
    throw refuse(str("it runs Lockstep '", introduction.build, "' and the coordinator '", build_, "'; use one build"));
  if (introduction.spec != spec_)
    throw refuse(str("it was told the cluster is ", introduction.spec, " and the coordinator ", spec_, "; give all the same"));
  if (std::ranges::count(expected_, introduction.task) == 0)
    throw refuse(str("there is no such task; the cluster has ", lockstep::join(", ", expected_)));
  require_beginning(lock, introduction);
  const auto found = members_.find(introduction.task);
  if (found != members_.end() && !found->second.has_left)
    throw refuse(str("its place is taken by process ", found->second.introduction.pid, " on host '",
                     found->second.introduction.host, "', which registered ",
                     shortened(seconds_since(found->second.last_heard)), " ago; give every task another index"));
  // An id of an earlier job is no member's here.
  const auto id = unguessable_number() | 1;
  members_[introduction.task] = {introduction, id, {}, std::chrono::steady_clock::now()};
  changed_.notify_all();
  return id;
}

// A job that ends admits nobody any more: who comes belongs to the next one, whose coordinator is not there yet.
void Members::require_beginning(std::unique_lock<std::mutex>& lock, const Introduction& introduction) {
  const auto has_left = [&](const Task& task) {
    const auto found = members_.find(task);
    return found != members_.end() && found->second.has_left;
  };
  // A process that has a place already, and comes again, may have said good-bye: it is on the way.
  const auto found = members_.find(introduction.task);
  if (found != members_.end() && found->second.introduction.pid == introduction.pid &&
      found->second.introduction.host == introduction.host)
    changed_.wait_for(lock, kGoodbyeOnTheWay, [&] { return is_over() || has_left(introduction.task); });
  if (is_over() || has_left(expected_[0]) || has_left(introduction.task))
    throw Error(ErrorCode::kUnavailable, str("the job at this address is ending and admits ", introduction.task,
                                             " no more; the next one is waited for"));
}

Member* Members::find(std::uint64_t id) {
  const auto found = std::ranges::find_if(members_, [&](const auto& entry) { return entry.second.id == id; });
  return found == members_.end() ? nullptr : &found->second;
}

const Member& Members::require(std::uint64_t id) {
  if (const Member* member = find(id); member != nullptr && !member->has_left) return *member;
  throw Error(ErrorCode::kFailedPrecondition, "this task is not registered with the coordinator, or not any more");
}

void Members::fail_locked(const Task& task, ErrorCode code, const std::string& message) {
  if (!failure_) failure_ = {task, code, message};
  changed_.notify_all();
}

void Members::leave(std::uint64_t id) {
  const std::lock_guard lock(mu_);
  if (Member* member = find(id)) member->has_left = true;
  changed_.notify_all();
}

void Members::lose(std::uint64_t id, const std::string& how) {
  const std::lock_guard lock(mu_);
  Member* member = find(id);
  if (member == nullptr || member->has_left) return;
  const auto& who = member->introduction;
  fail_locked(who.task, ErrorCode::kUnavailable,
              str(who.task, " on host '", who.host, "' (process ", who.pid, ") is gone: ", how, "; its last step was ",
                  member->activity.step < 0 ? str("none") : str(member->activity.step), ", as it told ",
                  shortened(seconds_since(member->last_heard)), " before"));
  member->has_left = true;
}

void Members::fail(std::uint64_t id, ErrorCode code, const std::string& message) {
  const std::lock_guard lock(mu_);
  fail_locked(require(id).introduction.task, code, message);
}

void Members::note(std::uint64_t id, const Activity& activity) {
  const std::lock_guard lock(mu_);
  if (Member* member = find(id)) {
    if (activity.calls >= member->activity.calls) member->activity = activity;  // a note may overtake another
    member->last_heard = std::chrono::steady_clock::now();
  }
}

void Members::put(std::uint64_t id, const std::string& key, std::string value) {
  const std::lock_guard lock(mu_);
  throw_if_over();
  require(id);
  values_[key] = std::move(value);
  changed_.notify_all();
}

void Members::throw_if_over() const {
  if (failure_) throw Error(failure_->code, failure_->message);
  if (is_closed_) throw Error(ErrorCode::kCancelled, "the coordinator has ended");
}

std::string Members::get(std::uint64_t id, const std::string& key, const Deadline& deadline) {
  std::unique_lock lock(mu_);
  throw_if_over();
  require(id);
  changed_.wait_until(lock, deadline.time(), [&] { return is_over() || values_.count(key) > 0; });
  if (values_.count(key) > 0) return values_.at(key);
  throw_if_over();
  throw Error(ErrorCode::kDeadlineExceeded, str("nobody has put '", key, "' in time"));
}

std::string Members::who_is_missing(const std::set<Task>& arrived) const {
  std::vector<std::string> missing;
  for (const auto& task : expected_) {
    if (arrived.count(task) > 0) continue;
    const auto found = members_.find(task);
    if (found == members_.end()) {
      missing.push_back(str(task, " (has not registered)"));
    } else if (found->second.has_left) {
      missing.push_back(str(task, " (has left)"));
    } else {
      const auto& member = found->second;
      missing.push_back(str(task, " on host '", member.introduction.host, "' (",
                            member.activity.doing.empty() ? "no word of what it does" : member.activity.doing, ", heard of ",
                            shortened(seconds_since(member.last_heard)), " ago)"));
    }
  }
  constexpr std::size_t kNamed = 12;
  if (missing.size() > kNamed) {
    const auto more = missing.size() - kNamed;
    missing.resize(kNamed);
    missing.push_back(str("and ", more, " more"));
  }
  return lockstep::join(", ", missing);
}

void Members::barrier(const std::string& name, std::uint64_t id, const Deadline& deadline) {
  std::unique_lock lock(mu_);
  throw_if_over();
  const auto task = require(id).introduction.task;
  auto& barrier = barriers_[name];
  if (!barrier.arrived.insert(task).second)
    throw Error(ErrorCode::kFailedPrecondition, str("barrier '", name, "': ", task, " is at it twice"));
  if (barrier.arrived.size() == expected_.size()) {
    barrier.arrived.clear();
    ++barrier.round;
    changed_.notify_all();
    return;
  }
  const auto round = barrier.round;
  const auto has_left = [&] {
    return std::ranges::any_of(
        members_, [&](const auto& entry) { return entry.second.has_left && barrier.arrived.count(entry.first) == 0; });
  };
  changed_.wait_until(lock, deadline.time(), [&] { return barrier.round != round || is_over() || has_left(); });
  if (barrier.round != round) return;
  const auto missing = who_is_missing(barrier.arrived);
  barrier.arrived.erase(task);
  throw_if_over();
  throw Error(has_left() ? ErrorCode::kUnavailable : ErrorCode::kDeadlineExceeded,
              str("barrier '", name, "': missing are ", missing));
}

std::optional<Failure> Members::failure(const Deadline& deadline) {
  std::unique_lock lock(mu_);
  changed_.wait_until(lock, deadline.time(), [&] { return is_over(); });
  return failure_;
}

void Members::wait_for_goodbyes(const Deadline& deadline) {
  std::unique_lock lock(mu_);
  changed_.wait_until(lock, deadline.time(), [&] {
    return is_over() || std::ranges::all_of(members_, [](const auto& entry) { return entry.second.has_left; });
  });
}

void Members::close() {
  const std::lock_guard lock(mu_);
  is_closed_ = true;
  changed_.notify_all();
}

std::vector<Member> Members::all() const {
  const std::lock_guard lock(mu_);
  std::vector<Member> members;
  for (const auto& task : expected_)
    if (const auto found = members_.find(task); found != members_.end()) members.push_back(found->second);
  return members;
}

}  // namespace lockstep

#include <algorithm>

#include "lockstep/base/error.h"
#include "lockstep/base/log.h"
#include "lockstep/base/str.h"
#include "lockstep/ps/fields.h"
#include "lockstep/ps/group_replica.h"

// Whether a group's primary is that still, and what it does before its backup knows of it. See Note [replication].

namespace lockstep::ps {
namespace {

constexpr std::chrono::seconds kAnswer{1};       // of a backup
constexpr std::chrono::milliseconds kPause{20};  // before it is asked again

}  // namespace

ForwardReply GroupReplica::other_view() const {
  return {ForwardReply::Kind::kOtherView, view_.epoch, view_.primary_incarnation};
}

ForwardReply GroupReplica::confirm(const ForwardRequest& request) const {
  const std::lock_guard lock(mu_);
  if (role_ != Role::kBackup || view_.epoch != request.epoch) return other_view();
  return {ForwardReply::Kind::kDone, view_.epoch};
}

// A view in which we are the primary again, too, is on its way to us.
bool GroupReplica::is_replaced(const ForwardReply& reply) const {
  return reply.epoch > view_.epoch && reply.primary != home_.incarnation;
}

void GroupReplica::require_current(const Held& held) {
  const auto until = Deadline::after(kAnswer);
  std::unique_lock lock(mu_);
  for (;;) {
    if (role_ != Role::kPrimary || is_deposed_ || held_.get() != &held) throw not_primary();
    if (!view_.has_backup() || Clock::now() - current_at_ < home_.most_stale) return;
    if (until.has_passed())
      throw Error(ErrorCode::kUnavailable, str("group ", group_, ": ", who(view_.backup), " has not said that ",
                                               who(home_.server), " is its primary still; it answers reads when it has"));
    if (is_asking_) {
      changed_.wait_until(lock, until.time(), [&] { return !is_asking_; });
      continue;
    }
    is_asking_ = true;
    const Peer peer{view_.epoch, home_.servers[view_.backup].get()};
    lock.unlock();
    ask_backup(peer);
    lock.lock();
  }
}

void GroupReplica::ask_backup(const Peer& peer) {
  const auto asked = Clock::now();
  std::optional<ForwardReply> reply;
  try {
    const ForwardRequest request{group_, peer.epoch};
    reply = from_bytes<ForwardReply>(
        peer.target->start(methods::kGroupConfirm, {to_bytes(request)}, Deadline::after(kAnswer))->wait()->fields());
  } catch (const Error&) {
    // Who wants to read says that there was no answer.
  }
  std::unique_lock lock(mu_);
  if (!reply)
    changed_.wait_until(lock, Deadline::after(kPause).time(), [&] { return view_.epoch != peer.epoch || is_deposed_; });
  is_asking_ = false;
  changed_.notify_all();
  if (!reply || view_.epoch != peer.epoch) return;
  // One that has an older view has taken nobody's place either.
  if (reply->kind == ForwardReply::Kind::kOtherView && is_replaced(*reply)) is_deposed_ = true;
  else current_at_ = std::max(current_at_, asked);
}

bool GroupReplica::wants_restore() const {
  const std::lock_guard lock(mu_);
  return role_ == Role::kPrimary && begin_ == Begin::kFromSnapshot;
}

// Note [replication], 9. Nobody uses the store meanwhile.
bool GroupReplica::restore() {
  std::shared_ptr<Held> held;
  {
    const std::lock_guard lock(mu_);
    held = held_;
  }
  auto end = Begin::kDone;
  try {
    home_.restore(group_, *held->store);
  } catch (const std::exception& error) {
    const auto* const known = dynamic_cast<const Error*>(&error);
    const bool may_pass = known != nullptr && is_retryable(known->code());  // no memory now
    log_once(
        may_pass ? LogLevel::kWarning : LogLevel::kError,
        str(who(home_.server), ": group ", group_, ": its snapshot cannot be read", may_pass ? " yet: " : ": ", error.what()));
    end = may_pass ? Begin::kFromSnapshot : Begin::kFailed;
  }
  const auto fresh = end == Begin::kFromSnapshot ? std::make_shared<Held>(*this) : held;
  const std::lock_guard lock(mu_);
  if (held_ != held) return true;
  held_ = fresh;
  begin_ = end;
  return end != Begin::kFailed;
}

// Note [replication], 8. What is done here without the backup stays only if the backup gets it: it is sent until there is
// another view, whose backup is filled with it, or which makes us forget it.
void GroupReplica::copied_in_turn(const Held& held, const std::function<Change()>& apply) {
  const auto turn = take_turn();
  const auto peer = peer_of(held);
  const auto change = apply();
  const auto until = Deadline::after(home_.backup_timeout);
  for (int tries = 0; peer.target != nullptr; ++tries) {
    std::string why;
    try {
      Sent sent{peer, &change, stage_parts(peer, change)};
      send(held, sent);
      wait_for(sent, "");
      break;
    } catch (const Error& error) {  // a piece did not arrive
      why = error.message();
      if (!is_retryable(error.code())) lose_touch(peer, why);
    }
    if (!pause(peer, tries)) break;
    if (until.has_passed()) lose_touch(peer, why);
  }
  wait_until_kept(held, ChangeOrder::Asks::kFirst);
}

}  // namespace lockstep::ps

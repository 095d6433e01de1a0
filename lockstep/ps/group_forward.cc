#include <algorithm>
#include <deque>

#include "lockstep/base/error.h"
#include "lockstep/base/log.h"
#include "lockstep/base/random.h"
#include "lockstep/base/str.h"
#include "lockstep/ps/fields.h"
#include "lockstep/ps/group_replica.h"
#include "lockstep/ps/held_gradients.h"

// What a group's primary sends its backup. See Note [replication].

namespace lockstep::ps {
namespace {

using std::chrono::milliseconds;
using std::chrono::seconds;

constexpr std::size_t kPieceBytes = std::size_t{4} << 20;  // what is larger goes before its change, in such pieces
constexpr std::size_t kInFlight = 4;                       // of them
constexpr seconds kOneTry{5};
constexpr seconds kFillTurn{2};  // then it looks whether the view is still the same

std::size_t bytes_of(const Change::Part& part) {
  std::size_t all = 0;
  for (const auto& piece : part.pieces) all += piece.bytes.size();
  return all;
}

}  // namespace

// Sends what is large in pieces. Whether they arrive shows when the change does.
std::set<std::uint32_t> GroupReplica::stage_parts(const Peer& peer, const Change& change) {
  std::set<std::uint32_t> staged;
  if (peer.target == nullptr) return staged;
  std::deque<std::unique_ptr<CallTarget::Pending>> under_way;
  const auto wait_for_one = [&] {
    under_way.front()->wait();
    under_way.pop_front();
  };
  for (const auto& part : change.parts) {
    const auto total = bytes_of(part);
    if (total <= kPieceBytes) continue;
    staged.insert(part.index);
    std::uint64_t offset = 0;
    for (const auto& piece : part.pieces)
      for (std::size_t first = 0; first < piece.bytes.size(); first += kPieceBytes) {
        const auto bytes = piece.bytes.subspan(first, std::min(kPieceBytes, piece.bytes.size() - first));
        const StageRequest request{change.sender, part.index, total, offset};
        offset += bytes.size();
        const ForwardRequest envelope{group_, peer.epoch, 0, methods::kStage, to_bytes(request)};
        if (under_way.size() >= kInFlight) wait_for_one();
        under_way.push_back(
            peer.target->start(methods::kGroupStage, {to_bytes(envelope), {{bytes, piece.owner}}}, Deadline::after(kOneTry)));
      }
  }
  while (!under_way.empty()) wait_for_one();
  return staged;
}

GroupReplica::Sent GroupReplica::send(const Held& held, const Peer& peer, const Change& change,
                                      const std::set<std::uint32_t>& staged) {
  Sent sent{peer};
  {
    const std::lock_guard lock(mu_);
    if (held_.get() != &held || role_ != Role::kPrimary) throw not_primary();
    if (view_.epoch == peer.epoch) sent.number = ++last_;  // else: there is another view, and nothing is waited for
  }
  sent.message.fields = to_bytes(ForwardRequest{group_, peer.epoch, sent.number, change.method, change.fields(staged)});
  for (const auto& part : change.parts)
    if (!staged.contains(part.index))
      sent.message.payload.insert(sent.message.payload.end(), part.pieces.begin(), part.pieces.end());
  if (sent.number > 0) start(sent);
  return sent;
}

void GroupReplica::start(Sent& sent) const {
  sent.at = Clock::now();
  try {
    sent.pending = sent.peer.target->start(methods::kGroupForward, sent.message, Deadline::after(kOneTry));
  } catch (const Error&) {
    sent.pending = nullptr;  // tried again
  }
}

void GroupReplica::wait_for(Sent& sent, const std::string& answer) {
  if (sent.number == 0) return;
  const auto until = Deadline::after(home_.backup_timeout);
  std::string last_words = "it could not be called";
  for (int tries = 0; !until.has_passed(); ++tries) {
    try {
      if (sent.pending != nullptr) {
        const auto reply = from_bytes<ForwardReply>(sent.pending->wait()->fields());
        if (note(sent, reply, answer)) return;
        last_words = str("it is in epoch ", reply.epoch);
      }
    } catch (const Error& error) {
      last_words = error.message();
      if (!is_retryable(error.code()) || error.code() == ErrorCode::kAborted) break;  // parts of it are not there any more
    }
    if (!pause(sent.peer, tries)) return;
    start(sent);
  }
  lose_touch(sent.peer, str("change ", sent.number, ": ", last_words));
}

bool GroupReplica::note(const Sent& sent, const ForwardReply& reply, const std::string& answer) {
  using Kind = ForwardReply::Kind;
  if (reply.kind == Kind::kDone && reply.is_complete && reply.answer != answer) {
    lose_touch(sent.peer, str("change ", sent.number, " had another answer there; its copy is not the same"));
    return true;
  }
  const std::lock_guard lock(mu_);
  if (view_.epoch != sent.peer.epoch) return true;
  if (reply.kind == Kind::kOtherView) {
    if (!is_replaced(reply)) return false;  // it has not heard of the view yet, or we have not heard of one that is ours, too
    is_deposed_ = true;
  } else {
    kept_ = std::max(kept_, sent.number);
    current_at_ = std::max(current_at_, sent.at);
  }
  changed_.notify_all();
  return true;
}

bool GroupReplica::pause(const Peer& peer, int tries) {
  std::unique_lock lock(mu_);
  const auto is_over = [&] { return view_.epoch != peer.epoch || is_deposed_ || needs_fill_; };
  changed_.wait_until(lock, Deadline::after(milliseconds(std::min(10 << std::min(tries, 5), 200))).time(), is_over);
  return !is_over();
}

void GroupReplica::lose_touch(const Peer& peer, const std::string& why) {
  const std::lock_guard lock(mu_);
  if (view_.epoch != peer.epoch || needs_fill_) return;
  log_warning(str("group ", group_, ": ", who(home_.server), " has lost touch with ", peer.target->name(), " (", why,
                  "); its copy must be made anew"));
  needs_fill_ = true;
  changed_.notify_all();
}

bool GroupReplica::wants_fill() const {
  const std::lock_guard lock(mu_);
  return role_ == Role::kPrimary && view_.has_backup() && !is_filled_ && !needs_fill_ && !is_deposed_;
}

// Note [replication], 6. Nothing is changed here while a variable is on its way.
bool GroupReplica::fill_one(const Held& held, const Peer& peer, const Change& change) {
  for (int tries = 0;; ++tries) {
    try {
      const auto staged = stage_parts(peer, change);
      auto sent = send(held, peer, change, staged);
      wait_for(sent, "");
      return wants_fill();
    } catch (const Error& error) {  // a piece did not arrive
      if (!is_retryable(error.code())) throw;
      if (!pause(peer, tries)) return false;
    }
  }
}

void GroupReplica::fill() {
  std::shared_ptr<Held> held;
  {
    const std::lock_guard lock(mu_);
    held = held_;
  }
  if (held == nullptr || !wants_fill()) return;
  Peer peer;
  try {
    peer = peer_of(*held);
    if (peer.target == nullptr) return;
    Sender sender{unguessable_number(), 0, 0};
    const auto in_own_turn = [&](const std::function<Change()>& make) {
      for (;;) {
        const auto turn = turns_.take(Deadline::after(kFillTurn));
        if (!wants_fill() || peer_of(*held).epoch != peer.epoch) return false;
        if (!turn) continue;
        ++sender.sequence;
        sender.answered_below = sender.sequence;
        const auto change = make();
        return change.method.empty() || fill_one(*held, peer, change);
      }
    };
    std::vector<std::shared_ptr<StoredVariable>> variables;
    const auto look = [&] {  // in a turn: what is made later comes as a change
      variables = held->store->variables();
      return Change();
    };
    if (!in_own_turn(look)) return;
    for (const auto& variable : variables) {
      const auto copy = [&] {
        return held->store->find(variable->name()) == variable ? held->store->copy_of(variable, sender) : Change();
      };
      if (!in_own_turn(copy)) return;
    }
    std::vector<HeldGradients::Waiting> gradients;
    const auto look_at_gradients = [&] {
      gradients = held->gradients->waiting();
      return Change();
    };
    if (!in_own_turn(look_at_gradients)) return;
    for (const auto& one : gradients)
      if (!in_own_turn([&] { return held->gradients->copy_of(one, sender); })) return;
    const auto clients = [&] {
      return Change{VariableStore::kCopyClients, sender, {}, [&](const auto&) { return held->store->copy_of_clients(); }};
    };
    if (!in_own_turn(clients)) return;
    const std::lock_guard lock(mu_);
    if (view_.epoch == peer.epoch && !needs_fill_ && !is_deposed_) is_filled_ = true;
    changed_.notify_all();
  } catch (const Error& error) {
    if (peer.target != nullptr) lose_touch(peer, error.message());
  }
}

}  // namespace lockstep::ps

#include <algorithm>
#include <deque>

#include "lockstep/base/error.h"
#include "lockstep/base/log.h"
#include "lockstep/base/on_exit.h"
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
constexpr seconds kPassedOn{2};  // a piece that need not be: it is sent with its change otherwise
constexpr seconds kFillTurn{2};  // then it looks whether the view is still the same

std::size_t bytes_of(const Change::Part& part) {
  std::size_t all = 0;
  for (const auto& piece : part.pieces) all += piece.bytes.size();
  return all;
}

}  // namespace

std::unique_ptr<CallTarget::Pending> GroupReplica::start_piece(const Peer& peer, const StageRequest& piece,
                                                               const std::vector<Piece>& bytes, seconds limit) const {
  const ForwardRequest envelope{group_, peer.epoch, 0, methods::kStage, to_bytes(piece)};
  return peer.target->start(methods::kGroupStage, {to_bytes(envelope), bytes}, Deadline::after(limit));
}

// Whatever is wrong with the backup shows when the change comes.
std::uint64_t GroupReplica::pass_on(const StageRequest& piece, const std::vector<Piece>& bytes,
                                    const std::function<void()>& meanwhile) {
  Peer peer;
  {
    const std::lock_guard lock(mu_);
    const bool is_possible = role_ == Role::kPrimary && view_.has_backup() && !needs_fill_ && !is_deposed_ && !bytes.empty();
    if (is_possible && passed_ < kMostPassed) peer = {view_.epoch, home_.servers[view_.backup].get()}, ++passed_;
  }
  if (peer.target == nullptr) return meanwhile(), 0;
  const OnExit leave([&] {
    const std::lock_guard lock(mu_);
    --passed_;
  });
  std::unique_ptr<CallTarget::Pending> pending;
  try {
    pending = start_piece(peer, piece, bytes, kPassedOn);
  } catch (const Error&) {
    return meanwhile(), 0;
  }
  meanwhile();
  try {
    pending->wait();
    return peer.epoch;
  } catch (const Error&) {
    return 0;
  }
}

// Sends a part in pieces, and waits until they have arrived.
void GroupReplica::stage_part(const Peer& peer, const Sender& sender, const Change::Part& part) const {
  std::deque<std::unique_ptr<CallTarget::Pending>> under_way;
  const auto wait_for_one = [&] {
    under_way.front()->wait();
    under_way.pop_front();
  };
  const auto total = bytes_of(part);
  std::uint64_t offset = 0;
  for (const auto& piece : part.pieces)
    for (std::size_t first = 0; first < piece.bytes.size(); first += kPieceBytes) {
      const auto bytes = piece.bytes.subspan(first, std::min(kPieceBytes, piece.bytes.size() - first));
      if (under_way.size() >= kInFlight) wait_for_one();
      under_way.push_back(start_piece(peer, {sender, part.index, total, offset}, {{bytes, piece.owner}}, kOneTry));
      offset += bytes.size();
    }
  while (!under_way.empty()) wait_for_one();
}

// Sends those parts that go before the change, unless they were passed on when they came. Returns which.
std::set<std::uint32_t> GroupReplica::stage_parts(const Peer& peer, const Change& change) const {
  std::set<std::uint32_t> staged;
  if (peer.target == nullptr) return staged;
  for (const auto& part : change.parts) {
    const bool is_there = part.passed_in == peer.epoch;
    if (!is_there && change.payload.empty() && bytes_of(part) <= kPieceBytes) continue;
    staged.insert(part.index);
    if (!is_there) stage_part(peer, change.sender, part);
  }
  return staged;
}

// They were there, and are not any more.
void GroupReplica::stage_again(const Sent& sent) const {
  for (const auto& part : sent.change->parts)
    if (sent.staged.contains(part.index)) stage_part(sent.peer, sent.change->sender, part);
}

void GroupReplica::send(const Held& held, Sent& sent) {
  const auto& change = *sent.change;
  {
    const std::lock_guard lock(mu_);
    if (held_.get() != &held || role_ != Role::kPrimary) throw not_primary();
    if (view_.epoch == sent.peer.epoch) sent.number = ++last_;  // else: there is another view, and nothing is waited for
  }
  sent.message.fields =
      to_bytes(ForwardRequest{group_, sent.peer.epoch, sent.number, change.method, change.fields(sent.staged)});
  sent.message.payload = change.payload;
  if (change.payload.empty())
    for (const auto& part : change.parts)
      if (!sent.staged.contains(part.index))
        sent.message.payload.insert(sent.message.payload.end(), part.pieces.begin(), part.pieces.end());
  if (sent.number > 0) start(sent);
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
  bool are_parts_missing = false;
  for (int tries = 0; !until.has_passed(); ++tries) {
    try {
      if (sent.pending != nullptr) {
        const auto reply = from_bytes<ForwardReply>(sent.pending->wait()->fields());
        if (note(sent, reply, answer)) return;
        last_words = str("it is in epoch ", reply.epoch);
      }
    } catch (const Error& error) {
      last_words = error.message();
      if (!is_retryable(error.code())) break;
      are_parts_missing = error.code() == ErrorCode::kAborted;
    }
    if (!pause(sent.peer, tries)) return;
    try {
      if (are_parts_missing) stage_again(sent);
    } catch (const Error&) {
      sent.pending = nullptr;  // tried again
      continue;
    }
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
  return role_ == Role::kPrimary && view_.has_backup() && !is_filled_ && !needs_fill_ && !is_deposed_ && begin_ == Begin::kDone;
}

// Note [replication], 6. Nothing is changed here while a variable is on its way.
bool GroupReplica::fill_one(const Held& held, const Peer& peer, const Change& change) {
  const auto until = Deadline::after(home_.backup_timeout);
  for (int tries = 0;; ++tries) {
    try {
      Sent sent{peer, &change, stage_parts(peer, change)};
      send(held, sent);
      wait_for(sent, "");
      return wants_fill();
    } catch (const Error& error) {  // a piece did not arrive
      if (!is_retryable(error.code())) throw;
      if (until.has_passed()) return lose_touch(peer, error.message()), false;
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
      return Change{.method = VariableStore::kCopyClients, .sender = sender, .fields = [&](const auto&) {
                      return held->store->copy_of_clients();
                    }};
    };
    if (!in_own_turn(clients)) return;
    const std::lock_guard lock(mu_);
    if (view_.epoch == peer.epoch && !needs_fill_ && !is_deposed_) is_filled_ = true;
    changed_.notify_all();
  } catch (const std::exception& error) {
    if (peer.target != nullptr) lose_touch(peer, error.what());
  }
}

}  // namespace lockstep::ps

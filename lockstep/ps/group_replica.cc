#include "lockstep/ps/group_replica.h"

#include <algorithm>

#include "lockstep/base/error.h"
#include "lockstep/base/log.h"
#include "lockstep/base/on_exit.h"
#include "lockstep/base/str.h"
#include "lockstep/ps/fields.h"
#include "lockstep/ps/held_gradients.h"
#include "lockstep/ps/inner_message.h"
#include "lockstep/ps/task_report.h"

namespace lockstep::ps {
namespace {

using std::chrono::seconds;

constexpr seconds kTurn{30};   // for one's turn: the copy of a large variable goes before
constexpr seconds kBefore{4};  // a backup waits for the changes before one
constexpr seconds kEnd{1};     // for the end of a change, before another view

bool is_change(const std::string& method) {
  return method == methods::kCreate || method == methods::kRemove || method == methods::kUpdate ||
         method == methods::kStepHold || method == methods::kStepApply;
}

}  // namespace

GroupReplica::Held::Held(GroupReplica& of)
    : replica(of),
      store(of.home_.make_store(*this)),
      gradients(std::make_unique<HeldGradients>(*store, 0, this)),
      methods([this] {
        auto all = store->methods();
        all.merge(gradients->methods());
        all.merge(arbiter.methods());
        if (replica.home_.more_methods != nullptr) all.merge(replica.home_.more_methods(*store));
        return all;
      }()) {}
GroupReplica::Held::~Held() = default;

GroupReplica::GroupReplica(const GroupHome& home, std::uint32_t group) : home_(home), group_(group) { view_.group = group; }
GroupReplica::~GroupReplica() = default;

std::string GroupReplica::who(std::uint32_t server) const {
  return server < home_.servers.size() ? home_.servers[server]->name() : "nobody";
}

void GroupReplica::install(const GroupView& view) {
  bool was_backup = false;
  {
    const std::lock_guard lock(mu_);
    was_backup = role_ == Role::kBackup && view.epoch > view_.epoch;
  }
  // What a lost primary has sent is done to its end: who repeats it here must find its answer.
  const auto turn = was_backup ? turns_.take(Deadline::after(kEnd)) : TurnGate::Turn();
  if (was_backup && !turn)
    throw Error(ErrorCode::kUnavailable, str("group ", group_, ": ", who(home_.server), " still does a change; say it again"));
  const auto fresh = std::make_shared<Held>(*this);
  std::shared_ptr<Held> old;  // its memory is given back without the lock
  const std::lock_guard lock(mu_);
  if (view.epoch <= view_.epoch) return;
  const auto is_me = [&](std::uint32_t server, std::uint64_t incarnation) {
    return server == home_.server && incarnation == home_.incarnation;
  };
  if (is_me(view.primary, view.primary_incarnation)) {
    const bool has_all = view_.epoch == 0
                             ? view.epoch == 1
                             : (role_ == Role::kPrimary && !is_deposed_) || (role_ == Role::kBackup && is_complete_);
    const bool is_restored = !has_all && view.is_restored && home_.restore != nullptr;
    if (!has_all && !is_restored)
      throw Error(ErrorCode::kFailedPrecondition, str(who(home_.server), " has not all of group ", group_,
                                                      ", and cannot be its primary in epoch ", view.epoch));
    if (is_restored) old = std::exchange(held_, nullptr);
    if (is_restored) begin_ = Begin::kFromSnapshot;
    if (held_ == nullptr) held_ = fresh;
    role_ = Role::kPrimary;
  } else {
    const bool is_backup = is_me(view.backup, view.backup_incarnation);
    old = std::exchange(held_, is_backup ? fresh : nullptr);
    role_ = is_backup ? Role::kBackup : Role::kNone;
    begin_ = Begin::kDone;
  }
  log_info(str(who(home_.server), ": group ", group_, ", epoch ", view.epoch, ": primary ", who(view.primary), ", backup ",
               who(view.backup), view.is_lost() ? "; it is lost" : ""));
  view_ = view;
  last_ = kept_ = done_ = 0;
  is_complete_ = is_filled_ = needs_fill_ = is_deposed_ = false;
  current_at_ = {};
  changed_.notify_all();
}

void GroupReplica::stop() {
  const std::lock_guard lock(mu_);
  role_ = Role::kNone;
  is_deposed_ = true;
  changed_.notify_all();
}

GroupStatus GroupReplica::status() const {
  GroupStatus status;
  std::shared_ptr<Held> held;
  {
    const std::lock_guard lock(mu_);
    status = {view_, is_complete_, is_filled_, needs_fill_};
    status.has_failed = begin_ == Begin::kFailed;
    held = held_;
  }
  if (held == nullptr) return status;
  status.names_changed = held->store->names_changed();
  status.operations = held->store->operations();
  return status;
}

GroupReport GroupReplica::report() const {
  GroupReport report{.group = group_};
  std::shared_ptr<Held> held;
  {
    const std::lock_guard lock(mu_);
    report.epoch = view_.epoch;
    report.role = role_;
    report.is_on_two = is_complete_ || is_filled_;
    held = held_;
  }
  if (held != nullptr) report.store = held->store->statistics();
  return report;
}

std::shared_ptr<const VariableStore> GroupReplica::store() const {
  const std::lock_guard lock(mu_);
  return held_ == nullptr ? nullptr : std::shared_ptr<const VariableStore>(held_, held_->store.get());
}

std::pair<std::uint64_t, std::shared_ptr<VariableStore>> GroupReplica::primary_store() const {
  const std::lock_guard lock(mu_);
  if (role_ != Role::kPrimary || is_deposed_ || begin_ != Begin::kDone) return {};
  return {view_.epoch, std::shared_ptr<VariableStore>(held_, held_->store.get())};
}

std::vector<std::string> GroupReplica::names() const {
  std::vector<std::string> all;
  if (const auto held = store())
    for (const auto& variable : held->variables()) all.push_back(variable->name());
  return all;
}

Error GroupReplica::not_primary() const {
  if (view_.is_lost()) return Error(ErrorCode::kDataLoss, view_.lost);
  return Error(ErrorCode::kUnavailable, str(who(home_.server), " is not the primary of group ", group_, " in epoch ",
                                            view_.epoch, is_deposed_ ? " any more" : str("; that is ", who(view_.primary))));
}

void GroupReplica::serve(const GroupCall& call, Incoming& request, Outgoing& reply) {
  std::shared_ptr<Held> held;
  const bool changes = is_change(call.method);
  {
    const std::lock_guard lock(mu_);
    if (role_ != Role::kPrimary || is_deposed_ || call.epoch > view_.epoch) throw not_primary();
    if (begin_ != Begin::kDone)
      throw Error(ErrorCode::kUnavailable,
                  str("group ", group_, ": ", who(home_.server), " reads its snapshot; try again later"));
    if (changes && changes_ >= kMostChanges)
      throw Error(ErrorCode::kUnavailable, str("group ", group_, " has ", changes_, " changes under way; try again later"));
    held = held_;
    if (changes) ++changes_;
  }
  const OnExit leave([&] {
    const std::lock_guard lock(mu_);
    if (changes) --changes_;
  });
  const auto method = held->methods.find(call.method);
  if (method == held->methods.end())
    throw Error(ErrorCode::kUnimplemented, str("a replicated group has no method '", call.method, "'"));
  if (!changes && call.method != methods::kStage && call.method != methods::kStepStage) require_current(*held);
  InnerMessage inner(call.fields, request);
  method->second.handler(inner, reply);
}

// Note [replication], 3.
GroupReplica::Peer GroupReplica::peer_of(const Held& held) const {
  const std::lock_guard lock(mu_);
  if (role_ != Role::kPrimary || is_deposed_ || held_.get() != &held) throw not_primary();
  if (needs_fill_)
    throw Error(ErrorCode::kUnavailable, str("group ", group_, ": ", who(home_.server), " has lost touch with ",
                                             who(view_.backup), " and waits for the coordinator"));
  return {view_.epoch, view_.has_backup() ? home_.servers[view_.backup].get() : nullptr, is_filled_};
}

TurnGate::Turn GroupReplica::take_turn() {
  auto turn = turns_.take(Deadline::after(kTurn));
  if (!turn)
    throw Error(ErrorCode::kUnavailable, str("group ", group_, ": no turn in ", kTurn.count(), " s; ", who(home_.server),
                                             " copies a large variable to its backup, or waits for it"));
  return turn;
}

std::string GroupReplica::in_turn(const Held& held, const Change& change, const std::function<std::string()>& apply) {
  for (;;) {
    const auto peer = peer_of(held);
    Sent sent{peer, &change, stage_parts(peer, change)};
    auto turn = take_turn();
    const auto now = peer_of(held);
    if (now.epoch != peer.epoch) continue;  // what was staged is at another server
    if (peer.target == nullptr) return apply();
    if (!now.has_all && change.check != nullptr) change.check();
    send(held, sent);
    std::string answer;
    std::exception_ptr failure;
    try {  // the backup has it: it is done here, or fails in the same way there
      answer = apply();
    } catch (const Error& error) {
      failure = std::current_exception();
      answer = name_of(error.code());
      if (is_retryable(error.code())) lose_touch(peer, str("a change was sent, and not done here: ", error.message()));
    }
    turn.end();
    wait_for(sent, answer);
    if (failure != nullptr) std::rethrow_exception(failure);
    return answer;
  }
}

void GroupReplica::wait_until_kept(const Held& held, ChangeOrder::Asks asks) {
  std::unique_lock lock(mu_);
  const auto epoch = view_.epoch;
  const auto last = last_;
  if (asks == ChangeOrder::Asks::kAgain)
    changed_.wait_until(lock, Deadline::after(home_.backup_timeout).time(),
                        [&] { return kept_ >= last || view_.epoch != epoch || needs_fill_ || is_deposed_; });
  if (role_ != Role::kPrimary || is_deposed_ || held_.get() != &held) throw not_primary();
  if (view_.epoch == epoch && (needs_fill_ || (asks == ChangeOrder::Asks::kAgain && kept_ < last)))
    throw Error(ErrorCode::kUnavailable,
                str("group ", group_, ": a change is done, and ", who(view_.backup), " has not said that it has it, too"));
}

// Note [replication], 4.
ForwardReply GroupReplica::take(const ForwardRequest& request, Incoming& payload) {
  std::shared_ptr<Held> held;
  ForwardReply reply;
  const auto is_other_view = [&] { return role_ != Role::kBackup || view_.epoch != request.epoch; };
  {
    std::unique_lock lock(mu_);
    const bool has_come = changed_.wait_until(lock, Deadline::after(kBefore).time(),
                                              [&] { return is_other_view() || done_ + 1 >= request.number; });
    if (is_other_view()) return other_view();
    if (!has_come)
      throw Error(ErrorCode::kUnavailable, str("group ", group_, ": change ", request.number, " came to ", who(home_.server),
                                               ", and ", done_ + 1, " did not"));
    held = held_;
  }
  const auto turn = take_turn();  // the same one twice: the second finds that it is done
  {
    const std::lock_guard lock(mu_);
    if (is_other_view()) return other_view();
    if (done_ >= request.number) return {ForwardReply::Kind::kDoneBefore, view_.epoch};
    reply.is_complete = is_complete_;
  }
  do_forwarded(*held, request, payload, reply);
  const std::lock_guard lock(mu_);
  if (held_ == held && view_.epoch == request.epoch) {
    done_ = request.number;
    is_complete_ = is_complete_ || request.method == VariableStore::kCopyClients;
    changed_.notify_all();
  }
  return reply;
}

void GroupReplica::do_forwarded(Held& held, const ForwardRequest& request, Incoming& payload, ForwardReply& reply) {
  auto& store = *held.store;
  InnerMessage inner(request.fields, payload);
  if (request.method == methods::kStepHold) held.gradients->redo(inner);
  else if (request.method == VariableStore::kCopy) store.take_copy(inner);
  else if (request.method == VariableStore::kCopyClients) store.take_clients(request.fields);
  else reply.answer = store.redo(request.method, inner, !reply.is_complete);
}

void GroupReplica::stage(const ForwardRequest& request, Incoming& payload) {
  std::shared_ptr<Held> held;
  {
    const std::lock_guard lock(mu_);
    if (role_ != Role::kBackup || view_.epoch != request.epoch)
      throw Error(ErrorCode::kUnavailable, str("group ", group_, ": a piece of epoch ", request.epoch, " came to ",
                                               who(home_.server), ", which is in epoch ", view_.epoch));
    held = held_;
  }
  InnerMessage inner(request.fields, payload);
  Outgoing nothing;
  held->methods.at(methods::kStage).handler(inner, nothing);
}

}  // namespace lockstep::ps

#pragma once

#include <chrono>
#include <condition_variable>
#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <set>
#include <string>
#include <vector>

#include "lockstep/base/deadline.h"
#include "lockstep/base/error.h"
#include "lockstep/ps/call_target.h"
#include "lockstep/ps/change_order.h"
#include "lockstep/ps/group_view.h"
#include "lockstep/ps/step_arbiter.h"
#include "lockstep/ps/store.h"
#include "lockstep/ps/turn_gate.h"

namespace lockstep::ps {

class HeldGradients;
struct GroupReport;

// What all groups of one server share. Const.
struct GroupHome {
  std::uint32_t server = 0;  // this one
  std::uint64_t incarnation = 0;
  std::vector<std::shared_ptr<CallTarget>> servers = {};  // all of the job, in their order
  // A new, empty store whose changes have this order.
  std::function<std::unique_ptr<VariableStore>(ChangeOrder&)> make_store = nullptr;
  // What else a primary answers, of its store.
  std::function<std::map<std::string, Method>(VariableStore&)> more_methods = nullptr;
  // Fills a new store from the group's snapshot.
  std::function<void(std::uint32_t group, VariableStore& store)> restore = nullptr;
  std::chrono::nanoseconds backup_timeout = std::chrono::seconds(20);    // then the primary has lost touch with its backup
  std::chrono::nanoseconds most_stale = std::chrono::milliseconds(500);  // reads: see Note [replication], 4
};

// One group on one server: as its primary, its backup, or neither. See Note [replication]. Thread-safe.
class GroupReplica {
 public:
  GroupReplica(const GroupHome& home, std::uint32_t group);
  ~GroupReplica();
  GroupReplica(const GroupReplica&) = delete;
  GroupReplica& operator=(const GroupReplica&) = delete;

  // Older views than it has, and its own again, change nothing. Throws kFailedPrecondition for a view in which it is the
  // primary though it has not all.
  void install(const GroupView& view);
  GroupStatus status() const;
  GroupReport report() const;
  std::vector<std::string> names() const;

  // A client's request. Throws kUnavailable unless it is the primary, kDataLoss when the group is lost.
  void serve(const GroupCall& call, Incoming& request, Outgoing& reply);
  // The primary's. Waits for those before it.
  ForwardReply take(const ForwardRequest& request, Incoming& payload);
  void stage(const ForwardRequest& request, Incoming& payload);
  // Whether its view is the newest that is known here.
  ForwardReply confirm(const ForwardRequest& request) const;

  // Sends all to a new backup, when there is one that has not got it. Returns when it is done, or there is another view.
  bool wants_fill() const;
  void fill();

  // Begins with its snapshot, where the view says so. False: it cannot be read.
  bool wants_restore() const;
  bool restore();

  // Ends all waits: the server ends.
  void stop();

  // Null: it is neither primary nor backup.
  std::shared_ptr<const VariableStore> store() const;
  // Its primary's, with the view's epoch; null: it is not that, or has not all yet.
  std::pair<std::uint64_t, std::shared_ptr<VariableStore>> primary_store() const;

  static constexpr int kMostChanges = 32;  // of clients, at a time; more are refused with kUnavailable, and come again
  static constexpr int kMostPassed = 16;   // pieces of clients, at a time; others are sent with their changes

 private:
  using Role = GroupRole;
  using Clock = std::chrono::steady_clock;
  // A store, and the order of its changes. One that was put aside is not changed any more, whoever still uses it.
  struct Held final : ChangeOrder {
    explicit Held(GroupReplica& of);
    ~Held() override;

    std::string in_turn(const Change& change, const std::function<std::string()>& apply) override {
      return replica.in_turn(*this, change, apply);
    }
    void copied_in_turn(const std::function<Change()>& apply) override { replica.copied_in_turn(*this, apply); }
    std::uint64_t pass_on(const StageRequest& piece, const std::vector<Piece>& bytes,
                          const std::function<void()>& meanwhile) override {
      return replica.pass_on(piece, bytes, meanwhile);
    }
    void wait_until_kept(Asks asks) override { replica.wait_until_kept(*this, asks); }

    GroupReplica& replica;
    const std::unique_ptr<VariableStore> store;
    const std::unique_ptr<HeldGradients> gradients;
    StepArbiter arbiter;
    const std::map<std::string, Method> methods;
  };
  // The backup, as long as the view lasts.
  struct Peer {
    std::uint64_t epoch = 0;
    CallTarget* target = nullptr;  // null: there is none
    bool has_all = false;
  };
  // A change on its way.
  struct Sent {
    Peer peer = {};
    const Change* change = nullptr;
    std::set<std::uint32_t> staged = {};  // its parts that were sent before it
    std::uint64_t number = 0;
    Outgoing message = {};
    Clock::time_point at = {};
    std::unique_ptr<CallTarget::Pending> pending = nullptr;
  };

  std::string in_turn(const Held& held, const Change& change, const std::function<std::string()>& apply);
  void copied_in_turn(const Held& held, const std::function<Change()>& apply);
  std::uint64_t pass_on(const StageRequest& piece, const std::vector<Piece>& bytes, const std::function<void()>& meanwhile);
  std::unique_ptr<CallTarget::Pending> start_piece(const Peer& peer, const StageRequest& piece, const std::vector<Piece>& bytes,
                                                   std::chrono::seconds limit) const;
  void wait_until_kept(const Held& held, ChangeOrder::Asks asks);

  Peer peer_of(const Held& held) const;  // throws kUnavailable
  TurnGate::Turn take_turn();
  std::set<std::uint32_t> stage_parts(const Peer& peer, const Change& change) const;
  void stage_again(const Sent& sent) const;
  void stage_part(const Peer& peer, const Sender& sender, const Change::Part& part) const;
  void send(const Held& held, Sent& sent);
  void start(Sent& sent) const;
  // Until the backup has it, or there is another view. `answer`: what the primary's was.
  void wait_for(Sent& sent, const std::string& answer);
  // True: it is over, in whatever way.
  bool note(const Sent& sent, const ForwardReply& reply, const std::string& answer);
  // False: there is another view.
  bool pause(const Peer& peer, int tries);
  void lose_touch(const Peer& peer, const std::string& why);
  bool fill_one(const Held& held, const Peer& peer, const Change& change);
  // Throws kUnavailable unless it was the primary a moment ago: of `most_stale`.
  void require_current(const Held& held);
  void ask_backup(const Peer& peer);
  bool is_replaced(const ForwardReply& reply) const;  // under mu_
  ForwardReply other_view() const;                    // under mu_
  void do_forwarded(Held& held, const ForwardRequest& request, Incoming& payload, ForwardReply& reply);
  Error not_primary() const;  // under mu_
  std::string who(std::uint32_t server) const;

  // Const after construction.
  const GroupHome& home_;
  const std::uint32_t group_;

  // Own synchronisation. Before mu_.
  TurnGate turns_;

  mutable std::mutex mu_;
  mutable std::condition_variable changed_;
  // Guarded by mu_.
  GroupView view_;
  Role role_ = Role::kNone;
  std::shared_ptr<Held> held_;
  std::uint64_t last_ = 0;    // the primary's newest number
  std::uint64_t kept_ = 0;    // all up to this one are on the backup, too
  std::uint64_t done_ = 0;    // a backup's: up to this one
  bool is_complete_ = false;  // a backup's
  bool is_filled_ = false;    // a primary's: its backup is complete
  bool needs_fill_ = false;   // a primary's: something did not reach its backup
  bool is_deposed_ = false;   // a primary's: its backup knows a newer view
  // A primary's: whether it has begun with what there is.
  enum class Begin { kDone, kFromSnapshot, kFailed };
  Begin begin_ = Begin::kDone;
  int changes_ = 0;                    // of clients, under way
  bool is_asking_ = false;             // a primary's: somebody asks its backup whether it is the primary still
  Clock::time_point current_at_ = {};  // a primary's: it was, then
  int passed_ = 0;                     // pieces of clients, under way
};

}  // namespace lockstep::ps

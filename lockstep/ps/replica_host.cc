#include "lockstep/ps/replica_host.h"

#include <condition_variable>
#include <mutex>

#include "lockstep/base/error.h"
#include "lockstep/base/random.h"
#include "lockstep/base/str.h"
#include "lockstep/base/thread.h"
#include "lockstep/ps/fields.h"
#include "lockstep/ps/group_replica.h"
#include "lockstep/ps/memory.h"
#include "lockstep/ps/task_report.h"

namespace lockstep::ps {
namespace {

constexpr std::chrono::milliseconds kLook{200};  // whether a backup must be filled

}  // namespace

struct ReplicaHost::State {
  explicit State(const ReplicaHostOptions& options)
      : home{.server = options.server,
             .incarnation = unguessable_number(),
             .servers = options.servers,
             .more_methods = options.more_methods,
             .restore = options.restore,
             .backup_timeout = options.backup_timeout,
             .most_stale = options.most_stale} {
    for (const auto& one : options.saved) saved[one.group] = one;
    auto store = options.store;
    if (store.memory == nullptr) store.memory = std::make_shared<Memory>(store.most_bytes);
    home.make_store = [store](ChangeOrder& order) {
      auto own = store;
      own.order = &order;
      return std::make_unique<VariableStore>(own);
    };
  }

  void install(const InstallRequest& request);
  ServerStatus status() const;
  std::vector<GroupReport> reports() const;
  std::shared_ptr<GroupReplica> find(std::uint32_t group) const;  // null: it is not known here
  GroupReplica& at(std::uint32_t group) const;                    // throws kUnavailable
  void fill(const std::stop_token& stop);

  // Const after construction.
  GroupHome home;

  mutable std::mutex mu;
  std::condition_variable_any changed;
  // Guarded by mu. Groups stay.
  std::uint32_t replication = 0;
  std::map<std::uint32_t, std::shared_ptr<GroupReplica>> groups;
  std::map<std::uint32_t, SavedGroup> saved;

  std::jthread filler;  // guarded by mu; from the first group on. Last: joined first
};

void ReplicaHost::State::install(const InstallRequest& request) {
  for (const auto& view : request.views)
    if (view.group >= home.servers.size())
      throw Error(ErrorCode::kInvalidArgument, str("group ", view.group, " of ", home.servers.size(), " servers"));
  std::vector<std::shared_ptr<GroupReplica>> known;
  {
    const std::lock_guard lock(mu);
    if (replication != 0 && replication != request.replication)
      throw Error(ErrorCode::kFailedPrecondition,
                  str(home.servers[home.server]->name(), " has variables with replication = ", replication,
                      ", and the coordinator asks for ", request.replication, "; start all servers again to change it"));
    replication = request.replication;
    for (const auto& view : request.views) {
      auto& group = groups[view.group];
      if (group == nullptr) group = std::make_shared<GroupReplica>(home, view.group);
      known.push_back(group);
    }
    if (!groups.empty() && !filler.joinable())
      filler = start_thread("lockstep:fill", [this](const std::stop_token& stop) { fill(stop); });
  }
  for (std::size_t i = 0; i < known.size(); ++i) known[i]->install(request.views[i]);
  changed.notify_all();
}

void ReplicaHost::State::fill(const std::stop_token& stop) {
  while (!stop.stop_requested()) {
    std::map<std::uint32_t, std::shared_ptr<GroupReplica>> all;
    {
      const std::lock_guard lock(mu);
      all = groups;
    }
    for (const auto& [number, group] : all) {
      if (stop.stop_requested()) return;
      if (group->wants_restore() && !group->restore()) {
        const std::lock_guard lock(mu);
        saved.erase(number);
      }
      if (group->wants_fill()) group->fill();
    }
    std::unique_lock lock(mu);
    changed.wait_for(lock, stop, kLook, [] { return false; });
  }
}

std::shared_ptr<GroupReplica> ReplicaHost::State::find(std::uint32_t group) const {
  const std::lock_guard lock(mu);
  const auto found = groups.find(group);
  return found == groups.end() ? nullptr : found->second;
}

GroupReplica& ReplicaHost::State::at(std::uint32_t group) const {
  if (const auto found = find(group)) return *found;
  throw Error(ErrorCode::kUnavailable, str(home.servers[home.server]->name(), " knows nothing of group ", group, " yet"));
}

ServerStatus ReplicaHost::State::status() const {
  ServerStatus out{home.incarnation};
  std::vector<std::shared_ptr<GroupReplica>> all;
  {
    const std::lock_guard lock(mu);
    out.replication = replication;
    for (const auto& [number, group] : groups) all.push_back(group);
    for (const auto& [number, one] : saved) out.saved.push_back(one);
  }
  for (const auto& group : all) out.groups.push_back(group->status());
  return out;
}

std::vector<GroupReport> ReplicaHost::State::reports() const {
  std::vector<std::shared_ptr<GroupReplica>> all;
  {
    const std::lock_guard lock(mu);
    for (const auto& [number, group] : groups) all.push_back(group);
  }
  std::vector<GroupReport> out;
  for (const auto& group : all) out.push_back(group->report());
  return out;
}

ReplicaHost::ReplicaHost(const ReplicaHostOptions& options) : state_(std::make_unique<State>(options)) {}
ReplicaHost::~ReplicaHost() { stop(); }

void ReplicaHost::stop() {
  std::vector<std::shared_ptr<GroupReplica>> all;
  {
    const std::lock_guard lock(state_->mu);
    for (const auto& [number, group] : state_->groups) all.push_back(group);
  }
  for (const auto& group : all) group->stop();
}

std::vector<ReplicaHost::Primary> ReplicaHost::primaries() const {
  std::map<std::uint32_t, std::shared_ptr<GroupReplica>> all;
  {
    const std::lock_guard lock(state_->mu);
    all = state_->groups;
  }
  std::vector<Primary> out;
  for (const auto& [number, group] : all) {
    auto [epoch, store] = group->primary_store();
    if (store != nullptr) out.push_back({number, epoch, std::move(store)});
  }
  return out;
}

void ReplicaHost::note_saved(const SavedGroup& saved) {
  const std::lock_guard lock(state_->mu);
  state_->saved[saved.group] = saved;
}

std::uint64_t ReplicaHost::incarnation() const noexcept { return state_->home.incarnation; }
ServerStatus ReplicaHost::status() const { return state_->status(); }
std::vector<GroupReport> ReplicaHost::reports() const { return state_->reports(); }
std::shared_ptr<const VariableStore> ReplicaHost::store(std::uint32_t group) const {
  const auto found = state_->find(group);
  return found == nullptr ? nullptr : found->store();
}

std::map<std::string, Method> ReplicaHost::methods() {
  namespace names = lockstep::ps::methods;
  auto& state = *state_;
  return {
      {names::kGroupStatus,
       {[&state](Incoming&, Outgoing& reply) { reply.fields = to_bytes(state.status()); }, HandlerKind::kQuick}},
      {names::kGroupInstall,
       {[&state](Incoming& request, Outgoing&) { state.install(from_bytes<InstallRequest>(request.fields())); }}},
      {names::kGroupNames, {[&state](Incoming& request, Outgoing& reply) {
         reply.fields = to_bytes(NamesReply{state.at(from_bytes<std::uint32_t>(request.fields())).names()});
       }}},
      {names::kGroupDescribe, {[&state](Incoming& request, Outgoing& reply) {
         const auto store = state.at(from_bytes<std::uint32_t>(request.fields())).store();
         reply.fields = to_bytes(store == nullptr ? DescribeReply() : store->describe());
       }}},
      {names::kGroupConfirm,
       {[&state](Incoming& request, Outgoing& reply) {
          const auto question = from_bytes<ForwardRequest>(request.fields());
          reply.fields = to_bytes(state.at(question.group).confirm(question));
        },
        HandlerKind::kQuick}},
      {names::kGroupCall, {[&state](Incoming& request, Outgoing& reply) {
         const auto call = from_bytes<GroupCall>(request.fields());
         state.at(call.group).serve(call, request, reply);
       }}},
      {names::kGroupForward, {[&state](Incoming& request, Outgoing& reply) {
         const auto change = from_bytes<ForwardRequest>(request.fields());
         reply.fields = to_bytes(state.at(change.group).take(change, request));
       }}},
      {names::kGroupStage, {[&state](Incoming& request, Outgoing&) {
         const auto piece = from_bytes<ForwardRequest>(request.fields());
         state.at(piece.group).stage(piece, request);
       }}},
  };
}

}  // namespace lockstep::ps

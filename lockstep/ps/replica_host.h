#pragma once

#include <chrono>
#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "lockstep/ps/call_target.h"
#include "lockstep/ps/group_view.h"
#include "lockstep/ps/rpc.h"
#include "lockstep/ps/store.h"

namespace lockstep::ps {

struct GroupReport;

struct ReplicaHostOptions {
  std::uint32_t server = 0;                               // this one's number
  std::vector<std::shared_ptr<CallTarget>> servers = {};  // all of the job, by their numbers
  StoreOptions store = {};                                // of each group's
  // What else the primary of a group answers, of its store: files. Null: nothing.
  std::function<std::map<std::string, Method>(VariableStore&)> more_methods = nullptr;
  // Snapshots that this server has, and how a new store gets a group's. Null: it keeps none.
  std::vector<SavedGroup> saved = {};
  std::function<void(std::uint32_t group, VariableStore& store)> restore = nullptr;
  std::chrono::nanoseconds backup_timeout = std::chrono::seconds(20);    // of changes: then a backup must be filled anew
  std::chrono::nanoseconds most_stale = std::chrono::milliseconds(500);  // of what reads miss: Note [replication], 4
};

// The groups that one parameter server has, as their primary or their backup, when they are replicated: Note [replication].
// Until a coordinator says so there are none, and it costs nothing. Thread-safe.
class ReplicaHost {
 public:
  explicit ReplicaHost(const ReplicaHostOptions& options);
  ~ReplicaHost();
  ReplicaHost(const ReplicaHost&) = delete;
  ReplicaHost& operator=(const ReplicaHost&) = delete;

  // What an RpcServer serves: see group_view.h. The host must outlive it.
  std::map<std::string, Method> methods();

  // Ends what waits, with kUnavailable; nothing is changed any more.
  void stop();

  // By which it is told from a process that was here before.
  std::uint64_t incarnation() const noexcept;
  ServerStatus status() const;
  // Of the groups that it has, or had.
  std::vector<GroupReport> reports() const;
  // The groups whose primary it is, and that are whole here.
  struct Primary {
    std::uint32_t group = 0;
    std::uint64_t epoch = 0;
    std::shared_ptr<VariableStore> store = nullptr;
  };
  std::vector<Primary> primaries() const;
  // There is a newer snapshot of the group.
  void note_saved(const SavedGroup& saved);

  // The group's variables here; null: it has none of them.
  std::shared_ptr<const VariableStore> store(std::uint32_t group) const;

 private:
  struct State;
  std::unique_ptr<State> state_;
};

}  // namespace lockstep::ps

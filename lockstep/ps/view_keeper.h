#pragma once

#include <chrono>
#include <memory>
#include <vector>

#include "lockstep/base/deadline.h"
#include "lockstep/ps/call_target.h"
#include "lockstep/ps/group_view.h"

namespace lockstep::ps {

struct ViewKeeperOptions {
  std::chrono::nanoseconds period = std::chrono::milliseconds(200);  // in which all servers are asked
  std::chrono::nanoseconds answer = std::chrono::seconds(1);         // for which one's answer is waited for
  int silences = 2;                                                  // that long, one after the other: it is missing
  int refusals = 3;  // answers that it cannot be reached, one after the other: it is missing
};

// Makes the views of all groups, in the coordinator's process: Note [replication]. Asks all servers again and again; a server
// that is missing loses its groups to their backups, one that is back becomes a backup where one is wanted. While there is no
// keeper, nothing is decided: what needs a decision waits. There must be one at most. Thread-safe.
class ViewKeeper {
 public:
  // Finds the groups as they are, or makes them. Waits until each has a complete backup or is lost; throws kDeadlineExceeded
  // naming what is missing, kFailedPrecondition when the servers keep variables that are not replicated.
  ViewKeeper(std::vector<std::shared_ptr<CallTarget>> servers, const Deadline& deadline, const ViewKeeperOptions& options = {});
  ~ViewKeeper();
  ViewKeeper(const ViewKeeper&) = delete;
  ViewKeeper& operator=(const ViewKeeper&) = delete;

  std::vector<GroupView> views() const;
  // A group's view: of a later epoch than this one, if that comes before the deadline.
  GroupView view_after(std::uint32_t group, std::uint64_t epoch, const Deadline& deadline) const;
  // Whether each group is on two servers now, all of it.
  bool is_complete() const;
  // Throws kDeadlineExceeded naming the groups that are not.
  void wait_until_complete(const Deadline& deadline) const;

 private:
  struct State;
  std::unique_ptr<State> state_;
};

// Says to all servers that variables are on one server each. Throws kFailedPrecondition when they are replicated there.
void tell_unreplicated(const std::vector<std::shared_ptr<CallTarget>>& servers, const Deadline& deadline);

}  // namespace lockstep::ps

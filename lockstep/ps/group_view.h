#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

// Note [replication]
// A group is the variables that were placed on one server, with their optimizers and the table of clients of Note [exactly
// once]; group g is that of server g. With `replication = 2` a group is on two servers, its primary and its backup.
// 1. Who they are says the group's view. Each new view has the next epoch. Only the coordinator makes views (ViewKeeper); it
//    gives them to all servers it can reach, and a restarted one takes the highest epoch that any server has.
// 2. Clients ask any server for the views, and send what they want to the primary (GroupTarget). When that fails they ask
//    again, and repeat it with the same Sender at whoever is the primary then: the table of clients goes with the group.
// 3. The primary does changes one after the other (GroupReplica::in_turn). Each has a number in its view: 1, 2, 3, ... In the
//    same moment it is sent to the backup, which does them in the order of their numbers, with the same code, and answers. The
//    client gets its answer when the backup has answered: both have the same bits then.
//    An update is sent as it came, before its values are read here: both read them at the same time. What is wrong with them
//    a complete backup finds as well, and both remember the same refusal; to one that is not complete an update is sent only
//    when it was found right.
//    What is large comes before its change, in pieces, and each is passed on when it comes (GroupReplica::pass_on). Pieces have
//    no numbers: a backup that lacks some says so when their change comes, and gets them again.
// 4. A backup takes changes of its own epoch only. So a primary that was stopped, and was replaced meanwhile, can acknowledge
//    nothing any more: it learns that there is a newer view, and is filled anew. It answers reads only when its backup, who
//    would be the primary in its place, has said in the last half second that it is not (an answer to a change says that, too;
//    without one it is asked). So a read misses at most what was acknowledged in the half second before it. A primary without a
//    backup cannot be replaced.
// 5. A primary whose backup does not answer does not go on alone: it sends the change again until there is a new view. In a new
//    view it is the primary still, and what it has done is kept; or it is not, and what it has not acknowledged is forgotten.
// 6. A new backup begins empty. The primary sends its variables one after the other, each as a change with a number, while
//    other changes go on between them: the backup passes over what concerns variables that it has not got yet, whose later copy
//    has it. The last is the table of clients: then the backup is complete, knows it, and can become the primary.
// 7. Gradients that wait for their step (Note [synchronous steps]) are on both servers, too: each is a change with a number,
//    and a new backup gets those that wait after the variables. The step's update is one more change. The arbiter is that of
//    group 0's primary; it is not copied: a new one is told its place by who comes, and what was counted for the open step is
//    collected again. A group applies steps one after the other: an earlier one that is still on its way is waited for.
// 8. Files that servers write (Note [files of parameter servers]) are written by primaries. A restored variable is a change,
//    too: the backup gets a copy.
// 9. Servers that keep snapshots take them of the groups whose primary they are, and say which they have. When the only
//    complete copy of a group is lost, and when all servers begin anew, the one with the newest (of the highest epoch) is the
//    primary of the next view, and begins with it; what was acknowledged after it is lost, as without replication.
// 10. Without a snapshot the next view says that the group is lost, and every call ends with kDataLoss.

namespace lockstep::ps {

inline constexpr std::uint32_t kNoServer = ~0U;

// See Note [replication]. Servers are numbers of tasks, each with the number of its process: one that was started again has
// another one, and nothing of what it had.
struct GroupView {
  std::uint32_t group = 0;
  std::uint64_t epoch = 0;  // 0: there is none
  std::uint32_t primary = kNoServer;
  std::uint64_t primary_incarnation = 0;
  std::uint32_t backup = kNoServer;
  std::uint64_t backup_incarnation = 0;
  std::string lost = "";     // what and why, when there is no copy any more
  bool is_restored = false;  // its primary has begun with its snapshot
  template <typename Fields>
  void list(Fields& fields) {
    fields(group, epoch, primary, primary_incarnation, backup, backup_incarnation, lost, is_restored);
  }
  friend bool operator==(const GroupView&, const GroupView&) = default;

  bool has_backup() const noexcept { return backup != kNoServer; }
  bool is_lost() const noexcept { return !lost.empty(); }
};

// What a server is to a group.
enum class GroupRole : std::uint8_t { kNone, kPrimary, kBackup };

namespace methods {
inline constexpr const char* kGroupStatus = "group.status";
inline constexpr const char* kGroupInstall = "group.install";
inline constexpr const char* kGroupNames = "group.names";
inline constexpr const char* kGroupCall = "group.call";
inline constexpr const char* kGroupForward = "group.forward";
inline constexpr const char* kGroupStage = "group.stage";
inline constexpr const char* kGroupConfirm = "group.confirm";
inline constexpr const char* kGroupDescribe = "group.describe";
}  // namespace methods

// A group as one server has it.
struct GroupStatus {
  GroupView view = {};
  bool is_complete = false;  // the server is its backup, and has all
  bool is_filled = false;    // the server is its primary, and the backup has said that it has all
  bool needs_fill = false;   // the server is its primary, and has lost touch with its backup
  std::uint64_t names_changed = 0;
  std::uint64_t operations = 0;  // of all its variables, as their versions count them
  bool has_failed = false;       // the server is its primary, and cannot read its snapshot
  template <typename Fields>
  void list(Fields& fields) {
    fields(view, is_complete, is_filled, needs_fill, names_changed, operations, has_failed);
  }
};

// A group's snapshot that a server has.
struct SavedGroup {
  std::uint32_t group = 0;
  std::uint64_t epoch = 0;
  std::uint64_t operations = 0;
  template <typename Fields>
  void list(Fields& fields) {
    fields(group, epoch, operations);
  }
};

struct ServerStatus {
  std::uint64_t incarnation = 0;
  std::uint32_t replication = 0;  // 0: nobody has said it
  std::vector<GroupStatus> groups = {};
  std::vector<SavedGroup> saved = {};
  template <typename Fields>
  void list(Fields& fields) {
    fields(incarnation, replication, groups, saved);
  }
};

// The coordinator's, to every server. Throws kFailedPrecondition there for another `replication` than was said before.
struct InstallRequest {
  std::uint32_t replication = 0;
  std::vector<GroupView> views = {};
  template <typename Fields>
  void list(Fields& fields) {
    fields(replication, views);
  }
};

// A client's request to the primary: a method of the store, with its fields; the payload is as it is.
struct GroupCall {
  std::uint32_t group = 0;
  std::uint64_t epoch = 0;  // of the view that the client knows
  std::string method = "";
  std::string fields = "";
  template <typename Fields>
  void list(Fields& list_of) {
    list_of(group, epoch, method, fields);
  }
};

// A change of the primary's; number 0: a piece that is staged before one, or the question whether the view is still the newest.
struct ForwardRequest {
  std::uint32_t group = 0;
  std::uint64_t epoch = 0;
  std::uint64_t number = 0;
  std::string method = "";
  std::string fields = "";
  template <typename Fields>
  void list(Fields& list_of) {
    list_of(group, epoch, number, method, fields);
  }
};
struct ForwardReply {
  enum class Kind : std::uint8_t { kDone, kDoneBefore, kOtherView };
  Kind kind = Kind::kDone;
  std::uint64_t epoch = 0;    // of the view that the server has
  std::uint64_t primary = 0;  // that one's process; of kOtherView
  bool is_complete = false;   // it was before this change
  std::string answer = "";    // of kDone
  template <typename Fields>
  void list(Fields& fields) {
    fields(kind, epoch, primary, is_complete, answer);
  }
};

struct NamesReply {
  std::vector<std::string> names = {};
  template <typename Fields>
  void list(Fields& fields) {
    fields(names);
  }
};

}  // namespace lockstep::ps

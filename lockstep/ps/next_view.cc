#include "lockstep/ps/next_view.h"

#include <algorithm>

#include "lockstep/base/str.h"

namespace lockstep::ps {
namespace {

using Is = SeenServer::Is;

std::string shown(const std::vector<std::string>& variables) {
  constexpr std::size_t kShown = 20;
  if (variables.empty()) return "the variables";
  const std::vector<std::string> first(variables.begin(),
                                       variables.begin() + static_cast<std::ptrdiff_t>(std::min(variables.size(), kShown)));
  const auto more = variables.size() - first.size();
  return str("variables '", join("', '", first), "'", more > 0 ? str(" and ", more, " more") : "");
}

// One process of a server, in a view.
struct Member {
  Member(const std::vector<SeenServer>& servers, std::uint32_t number, std::uint64_t incarnation)
      : seen(number < servers.size() ? &servers[number] : nullptr), process(incarnation) {}

  bool is_there() const { return seen != nullptr; }
  // Another process answers at its address: what it had is gone.
  bool has_ended() const { return seen != nullptr && seen->is == Is::kHere && seen->incarnation != process; }
  bool is_here() const { return seen != nullptr && seen->is == Is::kHere && seen->incarnation == process; }
  bool is_missed() const { return has_ended() || (seen != nullptr && seen->is == Is::kMissing); }

  const SeenServer* seen;
  std::uint64_t process;
};

// The first server, from the group's own on, that could be its backup.
std::optional<std::uint32_t> free_server(const GroupView& view, const std::vector<SeenServer>& servers) {
  for (std::uint32_t i = 0; i < servers.size(); ++i) {
    const auto number = (view.group + i) % static_cast<std::uint32_t>(servers.size());
    if (number != view.primary && servers[number].is == Is::kHere) return number;
  }
  return std::nullopt;
}

GroupView with_backup(GroupView view, std::uint32_t number, const std::vector<SeenServer>& servers) {
  view.backup = number;
  view.backup_incarnation = servers[number].incarnation;
  return view;
}

GroupView without_backup(GroupView view) {
  view.backup = kNoServer;
  view.backup_incarnation = 0;
  return view;
}

GroupView promoted(const GroupView& view) {
  auto next = without_backup(view);
  next.primary = view.backup;
  next.primary_incarnation = view.backup_incarnation;
  next.is_restored = false;
  return next;
}

// With the newest snapshot that a server has; nothing: nobody has one.
std::optional<GroupView> restored(const GroupView& view, const std::vector<SeenServer>& servers) {
  auto next = without_backup(view);
  std::uint64_t newest = 0;
  for (std::uint32_t server = 0; server < servers.size(); ++server)
    for (const auto& saved : servers[server].saved)
      if (saved.group == view.group && saved.epoch > newest && servers[server].is == Is::kHere) {
        newest = saved.epoch;
        next.primary = server;
        next.primary_incarnation = servers[server].incarnation;
      }
  if (newest == 0) return std::nullopt;
  next.epoch = std::max(view.epoch, newest) + 1;
  next.is_restored = true;
  return next;
}

std::string lost_text(const GroupView& view, const std::vector<std::string>& variables) {
  return str(
      shown(variables), " of group ", view.group, " are lost: /job:ps/task:", view.primary, " has ended, and ",
      view.has_backup() ? str("/job:ps/task:", view.backup, " had no complete copy") : std::string("there was no other copy"),
      " (epoch ", view.epoch, "); start all servers and the coordinator again, and restore a checkpoint");
}

}  // namespace

const GroupStatus* SeenServer::group(std::uint32_t number) const {
  const auto found = std::ranges::find_if(groups, [&](const GroupStatus& status) { return status.view.group == number; });
  return found == groups.end() ? nullptr : &*found;
}

std::optional<GroupView> next_view(const GroupView& view, const std::vector<SeenServer>& servers,
                                   const std::vector<std::string>& variables) {
  if (view.is_lost()) return std::nullopt;
  auto next = view;
  ++next.epoch;
  if (view.epoch == 0) {
    if (servers[view.group].is != Is::kHere) return std::nullopt;
    if (const auto from_snapshot = restored(view, servers)) return from_snapshot;
    next.primary = view.group;
    next.primary_incarnation = servers[view.group].incarnation;
    const auto backup = free_server(next, servers);
    return backup ? with_backup(next, *backup, servers) : next;
  }
  const Member primary(servers, view.primary, view.primary_incarnation);
  const Member backup(servers, view.backup, view.backup_incarnation);
  if (primary.is_missed()) {
    const auto* const copy = backup.is_here() ? backup.seen->group(view.group) : nullptr;
    if (copy != nullptr && copy->view.epoch == view.epoch && copy->is_complete) return promoted(next);
    // One that only does not answer may come back with all it has.
    const bool may_be_complete = backup.is_there() && !backup.has_ended() && copy == nullptr;
    if (!primary.has_ended() || may_be_complete) return std::nullopt;
    if (const auto from_snapshot = restored(view, servers)) return from_snapshot;
    next = without_backup(next);
    next.lost = lost_text(view, variables);
    return next;
  }
  if (!primary.is_here()) return std::nullopt;
  const auto* const own = primary.seen->group(view.group);
  if (own != nullptr && own->view.epoch == view.epoch && own->has_failed) {
    if (const auto from_snapshot = restored(view, servers)) return from_snapshot;
    next = without_backup(next);
    next.lost = lost_text(view, variables);
    return next;
  }
  if (view.has_backup()) {
    if (backup.is_missed()) return without_backup(next);
    const bool is_out_of_touch = own != nullptr && own->view.epoch == view.epoch && own->needs_fill;
    return is_out_of_touch && backup.is_here() ? std::optional(next) : std::nullopt;
  }
  const auto free = free_server(view, servers);
  return free ? std::optional(with_backup(next, *free, servers)) : std::nullopt;
}

}  // namespace lockstep::ps

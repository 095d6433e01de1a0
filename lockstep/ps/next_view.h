#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "lockstep/ps/group_view.h"

namespace lockstep::ps {

// A server as the coordinator sees it.
struct SeenServer {
  enum class Is {
    kHere,     // it has just answered
    kQuiet,    // it has not, for a moment
    kMissing,  // it has not for so long, or so clearly, that others take its place
  };
  Is is = Is::kQuiet;
  std::uint64_t incarnation = 0;  // when it last answered
  std::vector<GroupStatus> groups = {};
  std::vector<SavedGroup> saved = {};

  const GroupStatus* group(std::uint32_t number) const;
};

// What a group's view should be after `view`, when the servers are seen like this; nothing: it stays. See Note [replication].
// Without a view (epoch 0) the group is new: its own server and the next one have it, or the one that has a snapshot of it.
// `variables` are the group's, for the text of a view that is lost.
std::optional<GroupView> next_view(const GroupView& view, const std::vector<SeenServer>& servers,
                                   const std::vector<std::string>& variables);

}  // namespace lockstep::ps

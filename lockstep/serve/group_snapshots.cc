#include "lockstep/serve/group_snapshots.h"

#include <algorithm>
#include <condition_variable>

#include "lockstep/base/error.h"
#include "lockstep/base/log.h"
#include "lockstep/base/number.h"
#include "lockstep/base/str.h"
#include "lockstep/base/thread.h"
#include "lockstep/serve/snapshot_files.h"

namespace lockstep::internal {
namespace {

constexpr const char* kPrefix = "group-";
constexpr const char* kEpoch = "epoch";
constexpr std::int64_t kMostKept = 2;
constexpr std::chrono::seconds kTick{1};

std::uint64_t variables_in(const std::vector<ps::ReplicaHost::Primary>& groups) {
  std::uint64_t count = 0;
  for (const auto& one : groups) count += one.store->statistics().variables;
  return count;
}

}  // namespace

GroupSnapshots::GroupSnapshots(const SnapshotOptions& options)
    : options_(options), files_(options.files == nullptr ? real_files() : *options.files) {
  const std::lock_guard lock(mu_);
  for (const auto& name : files_.list(options_.folder)) {
    if (!name.starts_with(kPrefix)) continue;
    const auto group = whole_number<std::uint32_t>(name.substr(std::string(kPrefix).size()));
    if (!group) continue;
    auto& kept = kept_of(*group);
    std::vector<std::string> damage;
    if (const auto opened = kept.directory.open_newest(damage))
      kept.newest = {*group, number_in(*opened, kEpoch), number_in(*opened, kSnapshotUpdates)};
  }
}

GroupSnapshots::Kept& GroupSnapshots::kept_of(std::uint32_t group) {
  if (const auto found = groups_.find(group); found != groups_.end()) return found->second;
  const auto path = str(options_.folder, "/", kPrefix, group);
  auto& kept = groups_.try_emplace(group, Kept{{path, {.max_to_keep = kMostKept}, files_}, {}, {}}).first->second;
  kept.directory.prepare();
  return kept;
}

std::vector<ps::SavedGroup> GroupSnapshots::saved() const {
  const std::lock_guard lock(mu_);
  std::vector<ps::SavedGroup> all;
  for (const auto& [group, kept] : groups_)
    if (kept.newest) all.push_back(*kept.newest);
  return all;
}

void GroupSnapshots::restore(std::uint32_t group, ps::VariableStore& store) {
  const std::lock_guard lock(mu_);
  std::vector<std::string> damage;
  const auto opened = kept_of(group).directory.open_newest(damage, check_snapshot);
  for (const auto& one : damage) log_warning(str(one, "; the snapshot before it is used"));
  if (!opened)
    throw Error(ErrorCode::kDataLoss, str("there is no whole snapshot of group ", group, " in '", options_.folder, "'"));
  fill_store(store, *opened, kUnseenUpdates);
  log_warning(str("Server: ", options_.server, ": group ", group, " goes on from the snapshot '", opened->path, "'"));
}

void GroupSnapshots::take(ps::ReplicaHost& host) {
  for (const auto& one : host.primaries()) {
    const auto names = one.store->names_changed();
    const std::lock_guard lock(mu_);
    if (names == 0 && !groups_.contains(one.group)) continue;
    auto& kept = kept_of(one.group);
    if (kept.taken == std::tuple(one.epoch, one.store->operations(), names)) continue;
    std::uint64_t operations = 0;
    const auto numbers = [&] {
      operations = one.store->operations();
      return SnapshotNumbers{{kSnapshotUpdates, operations}, {kEpoch, one.epoch}};
    };
    write_snapshot(*one.store, {kept.directory, files_, options_.suffix, numbers});
    kept.taken = {one.epoch, operations, names};
    kept.newest = {one.group, one.epoch, operations};
    host.note_saved(*kept.newest);
  }
}

std::jthread GroupSnapshots::take_always(ps::ReplicaHost& host) {
  return start_thread("lockstep:gsnap", [this, &host](const std::stop_token& stop) {
    std::mutex mu;
    std::condition_variable_any wake;
    auto next = std::chrono::steady_clock::now() + options_.every;
    std::uint64_t seen = 0;   // variables, a moment ago
    std::uint64_t taken = 0;  // at the last one
    for (;;) {
      {
        std::unique_lock lock(mu);
        wake.wait_for(lock, stop, std::min<std::chrono::nanoseconds>(options_.every, kTick), [] { return false; });
      }
      if (stop.stop_requested()) return;
      // A model is made one by one: when no more variables come, it is there.
      const auto variables = variables_in(host.primaries());
      const bool has_settled = std::exchange(seen, variables) == variables;
      const auto now = std::chrono::steady_clock::now();
      if (now < next && !(variables != taken && has_settled)) continue;
      next = now + options_.every;
      taken = variables;
      try {
        take(host);
      } catch (const std::exception& error) {
        log_warning(str("Server: ", options_.server, ": a snapshot was not written, and is tried again: ", error.what()));
      }
    }
  });
}

}  // namespace lockstep::internal

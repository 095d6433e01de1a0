#include "lockstep/serve/snapshots.h"

#include <ATen/ATen.h>

#include <algorithm>
#include <random>

#include "lockstep/base/error.h"
#include "lockstep/base/log.h"
#include "lockstep/base/str.h"
#include "lockstep/base/thread.h"
#include "lockstep/serve/snapshot_files.h"

namespace lockstep::internal {
namespace {

constexpr std::int64_t kKept = 2;
constexpr std::chrono::seconds kTick{1};

std::uint64_t random_number() {
  std::random_device device;
  return (std::uint64_t{device()} << 32 | device()) | 1;
}

}  // namespace

Snapshots::Snapshots(ps::VariableStore& store, UpdateCounter& counter, const SnapshotOptions& options)
    : options_(options),
      files_(options.files == nullptr ? real_files() : *options.files),
      store_(store),
      counter_(counter),
      directory_(options.folder, {.max_to_keep = kKept}, files_) {
  recovery_.server = options.server;
  recovery_.incarnation = random_number();
  recovery_.keeps_snapshots = true;
  directory_.prepare();
  restore();
  next_ = std::chrono::steady_clock::now() + options_.every;
  if (options_.every.count() > 0) thread_ = start_thread("lockstep:snap", [this](const std::stop_token& stop) { run(stop); });
}

void Snapshots::restore() {
  std::vector<std::string> damage;
  const auto opened = directory_.open_newest(damage, check_snapshot);
  for (const auto& one : damage) log_warning(str(one, "; the snapshot before it is used"));
  const auto previous = counter_.previous();
  const auto saved = opened ? number_in(*opened, kSnapshotUpdates) : 0;
  recovery_.is_exact = previous ? previous->is_exact : !opened && damage.empty();
  recovery_.lost_updates = previous && previous->count > saved ? previous->count - saved : 0;
  counter_.count() = saved;
  if (opened) {
    recovery_.snapshot = opened->path;
    fill_store(store_, *opened, recovery_.lost_updates + (recovery_.is_exact ? 1 : kUnseenUpdates));
    taken_.emplace(saved, seen_ = store_.names_changed());
  }
  if (opened || recovery_.lost_updates > 0 || !recovery_.is_exact)
    log_warning(str("Server: ", options_.server, " ", describe(recovery_)));
}

void Snapshots::take() {
  const std::lock_guard lock(mu_);
  const auto now = std::pair<std::uint64_t, std::uint64_t>(counter_.count(), store_.names_changed());
  if (taken_ == now || (!taken_ && now.second == 0)) return;  // nothing is new, or there has been nothing yet
  std::uint64_t updates = 0;
  const auto numbers = [&] {
    updates = counter_.count();
    return SnapshotNumbers{{kSnapshotUpdates, updates}};
  };
  write_snapshot(store_, {directory_, files_, options_.suffix, numbers});
  taken_.emplace(updates, now.second);
}

// Variables are waited for as long as more of them come: a model is made one by one.
bool Snapshots::is_due() {
  const auto now = std::chrono::steady_clock::now();
  const auto names = store_.names_changed();
  const bool has_settled = std::exchange(seen_, names) == names;
  {
    const std::lock_guard lock(mu_);
    const bool are_new = names != (taken_ ? taken_->second : 0);
    if (now < next_ && !(are_new && has_settled)) return false;
  }
  next_ = now + options_.every;
  return true;
}

void Snapshots::run(const std::stop_token& stop) {
  for (;;) {
    {
      std::unique_lock lock(mu_);
      wake_.wait_for(lock, stop, std::min<std::chrono::nanoseconds>(options_.every, kTick), [] { return false; });
    }
    if (stop.stop_requested()) return;
    try {
      if (is_due()) take();
    } catch (const std::exception& error) {
      log_warning(str("Server: ", options_.server, ": a snapshot was not written, and is tried again: ", error.what()));
    }
  }
}

}  // namespace lockstep::internal

#include "lockstep/ps/view_keeper.h"

#include <algorithm>
#include <condition_variable>
#include <mutex>
#include <optional>

#include "lockstep/base/error.h"
#include "lockstep/base/log.h"
#include "lockstep/base/str.h"
#include "lockstep/base/thread.h"
#include "lockstep/ps/fields.h"
#include "lockstep/ps/next_view.h"

namespace lockstep::ps {
namespace {

using Servers = std::vector<std::shared_ptr<CallTarget>>;

}  // namespace

struct ViewKeeper::State {
  // A server, as far as it has answered. Used only on the thread that asks.
  struct Seen {
    SeenServer now = {};
    int silences = 0;  // one after the other
    int refusals = 0;
  };

  State(Servers given, const ViewKeeperOptions& with) : options(with), servers(std::move(given)), seen(servers.size()) {
    for (std::uint32_t group = 0; group < servers.size(); ++group) {
      views.emplace_back().group = group;
      names.emplace_back();
    }
  }

  // One that refuses us is an error when the keeper begins; later it is as one that is gone.
  enum class Begins { kNow, kBefore };
  void look(Begins begins);  // at all servers
  void note(Seen& server, const Error& error, Begins begins) const;
  void take_newest_views();  // those that an earlier coordinator has made
  void decide();
  void tell();  // every server that has older views
  void learn_names();
  void note_state();
  std::string restored_text(const GroupView& view) const;
  void run(const std::stop_token& stop);
  std::string incomplete() const;  // which groups, as text; under mu

  // Const after construction.
  const ViewKeeperOptions options;
  const Servers servers;

  // Used only on the constructor's thread, then on the keeper's.
  std::vector<Seen> seen;
  struct Names {
    std::uint64_t changed = 0;
    std::vector<std::string> all = {};
    std::uint64_t operations = 0;  // the most that were heard of
  };
  std::vector<Names> names;  // by group

  mutable std::mutex mu;
  mutable std::condition_variable_any changed;
  // Guarded by mu; written only on the same threads.
  std::vector<GroupView> views;
  std::vector<bool> is_complete = {};

  std::jthread keeper;  // last: joined first
};

void ViewKeeper::State::note(Seen& server, const Error& error, Begins begins) const {
  if (!is_retryable(error.code())) {
    if (begins == Begins::kNow) throw Error(error);
    log_once(LogLevel::kWarning, str("a parameter server cannot be used: ", error.what()));  // the others go on
  }
  const bool is_silent = error.code() == ErrorCode::kDeadlineExceeded;
  ++(is_silent ? server.silences : server.refusals);
  const bool is_missing = server.silences >= options.silences || server.refusals >= options.refusals;
  server.now.is = is_missing ? SeenServer::Is::kMissing : SeenServer::Is::kQuiet;
  server.now.groups.clear();
  server.now.saved.clear();
}

void ViewKeeper::State::look(Begins begins) {
  std::vector<std::unique_ptr<CallTarget::Pending>> calls(servers.size());
  std::vector<std::optional<Error>> errors(servers.size());
  for (std::size_t i = 0; i < servers.size(); ++i) {
    try {
      calls[i] = servers[i]->start(methods::kGroupStatus, {}, Deadline::after(options.answer));
    } catch (const Error& error) {
      errors[i] = error;
    }
  }
  for (std::size_t i = 0; i < servers.size(); ++i) {
    auto& server = seen[i];
    try {
      if (errors[i]) throw Error(*errors[i]);
      const auto status = from_bytes<ServerStatus>(calls[i]->wait()->fields());
      if (status.replication == 1)
        throw Error(ErrorCode::kFailedPrecondition,
                    str(servers[i]->name(), " has variables with replication = 1; start all servers again to change it"));
      if (server.now.incarnation != 0 && server.now.incarnation != status.incarnation)
        log_warning(str(servers[i]->name(), " was started again, and has lost what it had"));
      server = {{SeenServer::Is::kHere, status.incarnation, status.groups, status.saved}};
    } catch (const Error& error) {
      note(server, error, begins);
    }
  }
}

void ViewKeeper::State::take_newest_views() {
  const std::lock_guard lock(mu);
  for (const auto& server : seen)
    for (const auto& status : server.now.groups)
      if (status.view.group < views.size() && status.view.epoch > views[status.view.group].epoch)
        views[status.view.group] = status.view;
}

void ViewKeeper::State::decide() {
  std::vector<SeenServer> now;
  for (const auto& server : seen) now.push_back(server.now);
  for (std::size_t group = 0; group < servers.size(); ++group) {
    const auto next = next_view(views[group], now, names[group].all);
    if (!next) continue;
    if (next->is_lost()) {
      log(LogLevel::kError, next->lost);
    } else if (next->is_restored && next->primary_incarnation != views[group].primary_incarnation) {
      log_warning(restored_text(*next));
    } else if (next->epoch > 1) {
      const auto name = [&](std::uint32_t server) { return server == kNoServer ? "none" : servers[server]->name(); };
      log_warning(str("group ", group, " (the variables of ", servers[group]->name(), "), epoch ", next->epoch, ": primary ",
                      name(next->primary), ", backup ", name(next->backup)));
    }
    const std::lock_guard lock(mu);
    views[group] = *next;
  }
}

std::string ViewKeeper::State::restored_text(const GroupView& view) const {
  std::uint64_t saved = 0;
  for (const auto& one : seen[view.primary].now.saved)
    if (one.group == view.group) saved = one.operations;
  const auto known = names[view.group].operations;
  return str("group ", view.group, " (the variables of ", servers[view.group]->name(), "), epoch ", view.epoch,
             ": goes on from the snapshot of ", servers[view.primary]->name(),
             known > saved ? str("; at least ", known - saved, " acknowledged updates after it are lost") : std::string());
}

// Backups first: a primary then finds them ready.
void ViewKeeper::State::tell() {
  const auto tell_one = [&](std::size_t server, bool (*is_meant)(const GroupView&, std::uint32_t)) {
    InstallRequest request{2, {}};
    for (const auto& view : views) {
      const auto* const there = seen[server].now.group(view.group);
      if ((there == nullptr || there->view.epoch < view.epoch) && view.epoch > 0 &&
          is_meant(view, static_cast<std::uint32_t>(server)))
        request.views.push_back(view);
    }
    if (request.views.empty() || seen[server].now.is != SeenServer::Is::kHere) return;
    try {
      servers[server]->start(methods::kGroupInstall, {to_bytes(request)}, Deadline::after(options.answer))->wait();
    } catch (const Error& error) {  // said again with the next look
      log_warning(str(servers[server]->name(), " did not take a view: ", error.message()));
    }
  };
  for (std::size_t i = 0; i < servers.size(); ++i)
    tell_one(i, [](const GroupView& view, std::uint32_t server) { return view.primary != server; });
  for (std::size_t i = 0; i < servers.size(); ++i)
    tell_one(i, [](const GroupView& view, std::uint32_t server) { return view.primary == server; });
}

void ViewKeeper::State::learn_names() {
  for (const auto& view : views) {
    if (view.primary >= servers.size() || seen[view.primary].now.is != SeenServer::Is::kHere) continue;
    const auto* const status = seen[view.primary].now.group(view.group);
    if (status == nullptr || status->view.epoch != view.epoch) continue;
    names[view.group].operations = status->operations;
    if (status->names_changed == names[view.group].changed) continue;
    try {
      const auto reply =
          servers[view.primary]->start(methods::kGroupNames, {to_bytes(view.group)}, Deadline::after(options.answer))->wait();
      names[view.group] = {status->names_changed, from_bytes<NamesReply>(reply->fields()).names, status->operations};
    } catch (const Error&) {
      // With the next look.
    }
  }
}

void ViewKeeper::State::note_state() {
  const std::lock_guard lock(mu);
  is_complete.assign(views.size(), false);
  for (const auto& view : views) {
    if (!view.has_backup() || view.is_lost()) continue;
    const auto* const at_primary = seen[view.primary].now.group(view.group);
    const auto* const at_backup = seen[view.backup].now.group(view.group);
    is_complete[view.group] = at_primary != nullptr && at_backup != nullptr && at_primary->view.epoch == view.epoch &&
                              at_backup->view.epoch == view.epoch && at_backup->is_complete;
  }
  changed.notify_all();
}

void ViewKeeper::State::run(const std::stop_token& stop) {
  while (!stop.stop_requested()) {
    try {
      look(Begins::kBefore);
      take_newest_views();
      learn_names();
      decide();
      tell();
      note_state();
    } catch (const std::exception& error) {
      log_warning(str("views of replicated variables: ", error.what()));
    }
    std::unique_lock lock(mu);
    changed.wait_for(lock, stop, options.period, [] { return false; });
  }
}

std::string ViewKeeper::State::incomplete() const {
  std::vector<std::string> missing;
  for (const auto& view : views)
    if (view.is_lost() || is_complete.empty() || !is_complete[view.group]) missing.push_back(servers[view.group]->name());
  return join(", ", missing);
}

ViewKeeper::ViewKeeper(Servers servers, const Deadline& deadline, const ViewKeeperOptions& options)
    : state_(std::make_unique<State>(std::move(servers), options)) {
  auto& state = *state_;
  const auto is_here = [](const State::Seen& one) { return one.now.is == SeenServer::Is::kHere; };
  do {  // all must have been heard: one that is not may have a newer view
    if (deadline.has_passed()) throw Error(ErrorCode::kDeadlineExceeded, "not all parameter servers have said what they have");
    state.look(State::Begins::kNow);
    if (std::ranges::all_of(state.seen, is_here)) break;
    std::unique_lock lock(state.mu);
    state.changed.wait_for(lock, state.options.period, [] { return false; });
  } while (true);
  state.keeper = start_thread("lockstep:views", [&state](const std::stop_token& stop) { state.run(stop); });
  wait_until_complete(deadline);
}

ViewKeeper::~ViewKeeper() = default;

std::vector<GroupView> ViewKeeper::views() const {
  const std::lock_guard lock(state_->mu);
  return state_->views;
}

GroupView ViewKeeper::view_after(std::uint32_t group, std::uint64_t epoch, const Deadline& deadline) const {
  std::unique_lock lock(state_->mu);
  state_->changed.wait_until(lock, deadline.time(), [&] { return state_->views.at(group).epoch > epoch; });
  return state_->views.at(group);
}

bool ViewKeeper::is_complete() const {
  const std::lock_guard lock(state_->mu);
  return state_->incomplete().empty();
}

void ViewKeeper::wait_until_complete(const Deadline& deadline) const {
  std::unique_lock lock(state_->mu);
  const auto& views = state_->views;
  const auto is_over = [&] {
    return state_->incomplete().empty() || std::ranges::any_of(views, [](const GroupView& view) { return view.is_lost(); });
  };
  if (!state_->changed.wait_until(lock, deadline.time(), is_over))
    throw Error(ErrorCode::kDeadlineExceeded,
                str("these servers' variables have no complete backup: ", state_->incomplete(), "; is a server missing?"));
}

void tell_unreplicated(const Servers& servers, const Deadline& deadline) {
  std::vector<std::unique_ptr<CallTarget::Pending>> calls;
  for (const auto& server : servers)
    calls.push_back(server->start(methods::kGroupInstall, {to_bytes(InstallRequest{1, {}})}, deadline));
  for (const auto& call : calls) call->wait();
}

}  // namespace lockstep::ps

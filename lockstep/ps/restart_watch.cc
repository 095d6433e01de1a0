#include "lockstep/ps/restart_watch.h"

#include "lockstep/base/deadline.h"
#include "lockstep/base/error.h"
#include "lockstep/base/log.h"
#include "lockstep/base/str.h"
#include "lockstep/base/thread.h"
#include "lockstep/ps/fields.h"

namespace lockstep {

std::string describe(const ServerRecovery& recovery) {
  if (recovery.snapshot.empty() && recovery.lost_updates == 0 && recovery.is_exact) return "began with nothing";
  const auto lost = str(recovery.is_exact ? "" : "at least ", recovery.lost_updates, " acknowledged updates");
  if (recovery.snapshot.empty()) return str("began with nothing, for want of a snapshot that is whole; ", lost, " are lost");
  return str("goes on from the snapshot '", recovery.snapshot, "'; ", lost, " after it are lost");
}

namespace ps {

RestartWatch::RestartWatch(std::vector<std::shared_ptr<RpcChannel>> servers, std::chrono::nanoseconds every)
    : servers_(std::move(servers)), every_(every) {
  thread_ = start_thread("lockstep:starts", [this](const std::stop_token& stop) { run(stop); });
}

std::vector<ServerRecovery> RestartWatch::ask() {
  std::vector<ServerRecovery> all;
  for (const auto& server : servers_) {
    const auto deadline = Deadline::after(std::chrono::seconds(10));
    server->wait_until_reachable(deadline);  // one that was just started again
    const auto reply = server->call(ServerRecovery::kMethod, {}, deadline);
    all.push_back(from_bytes<ServerRecovery>(reply->fields()));
    note(all.back());
  }
  return all;
}

void RestartWatch::note(const ServerRecovery& recovery) {
  bool is_first = false;
  {
    const std::lock_guard lock(mu_);
    const auto [known, is_new] = known_.emplace(recovery.server, recovery.incarnation);
    if (!is_new && known->second == recovery.incarnation) return;
    known->second = recovery.incarnation;
    is_first = is_new;
  }
  if (!is_first) log_warning(str("ParameterServerStrategy: ", recovery.server, " was started again, and ", describe(recovery)));
  else if (!recovery.snapshot.empty() || recovery.lost_updates > 0)
    log_warning(str("ParameterServerStrategy: ", recovery.server, " ", describe(recovery)));
}

void RestartWatch::run(const std::stop_token& stop) {
  while (!stop.stop_requested()) {
    for (const auto& server : servers_) {
      if (stop.stop_requested()) return;
      try {
        const auto reply = server->call(ServerRecovery::kMethod, {}, Deadline::after(std::chrono::seconds(1)));
        note(from_bytes<ServerRecovery>(reply->fields()));
      } catch (const Error&) {  // who uses the server learns that it is gone
      }
    }
    std::unique_lock lock(mu_);
    wake_.wait_for(lock, stop, every_, [] { return false; });
  }
}

}  // namespace ps
}  // namespace lockstep

#pragma once

#include <chrono>
#include <functional>
#include <map>
#include <string>
#include <thread>
#include <vector>

#include "lockstep/base/error.h"
#include "lockstep/base/gate.h"
#include "lockstep/cluster/coordination.h"
#include "lockstep/collective/calls.h"

namespace lockstep {

// What a worker tells the others it does.
Activity activity_of(const Calls& calls);

// Watches how long this worker waits in a collective, and says who is late.
//
// Note [late workers]
// 1. A call that has waited `stall_warning` is logged: which it is, who has arrived, who has not and what those do, as
//    their own threads last told the coordinator (a stopped process tells nothing: its age shows). Again at twice the
//    time, and so on.
// 2. After `timeout` the job fails with kDeadlineExceeded and the same text.
// 3. While a call waits, the machines of the other workers are asked whether they answer this one: a link between two
//    workers may be gone while both reach the coordinator (kUnavailable).
// 4. While a call waits, the coordinator is asked whether a worker has ended: it will not come any more (kUnavailable).
// Deaths are the coordinator's business: it tells everybody at once.
class Watchdog {
 public:
  struct Setup {
    std::string me;                         // "worker 1"
    std::vector<std::string> workers = {};  // all, as tasks are printed, in the order of ranks
    std::chrono::nanoseconds stall_warning = std::chrono::seconds(5);
    std::chrono::nanoseconds timeout = std::chrono::minutes(30);
    std::function<ClusterView()> look = {};          // throws when the coordinator does not answer
    std::function<void(const Activity&)> tell = {};  // what this worker does
    // Who does not answer this machine any more, asked at every tick; may be empty. See Note [reach].
    std::function<std::string(bool is_wanted)> reach = {};
    std::function<void(const Error&)> fail = {};  // ends the job
  };
  Watchdog(const Calls& calls, Setup setup);
  ~Watchdog();
  Watchdog(const Watchdog&) = delete;
  Watchdog& operator=(const Watchdog&) = delete;

 private:
  struct Seen;

  void watch(const std::stop_token& stop);
  void look_at(const Call& call, double waited);
  // True: the job has failed, since another machine does not answer.
  bool is_cut_off(const std::vector<Call>& under_way);
  // Who has arrived and who has not. `left`: a worker that has ended, if there is one.
  std::string describe(const Call& call, double waited, std::string& left);
  std::string head_of(const Call& call, double waited) const;

  // Const after construction.
  const Calls& calls_;
  const Setup setup_;

  // Used only by the thread.
  std::map<std::uint64_t, double> warned_at_;  // by call: seconds waited when it was last logged
  double asked_at_ = 0;                        // seconds into the oldest call
  std::string silence_;                        // how the coordinator did not answer when it was last asked; "": it did

  // Own synchronisation.
  Gate ending_;

  std::jthread thread_;  // last: joined first
};

}  // namespace lockstep

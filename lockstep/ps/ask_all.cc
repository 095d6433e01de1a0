#include "lockstep/ps/ask_all.h"

#include <condition_variable>
#include <mutex>
#include <numeric>
#include <optional>

#include "lockstep/base/error.h"
#include "lockstep/base/thread.h"
#include "lockstep/ps/connections.h"
#include "lockstep/ps/fields.h"
#include "lockstep/ps/view_keeper.h"

namespace lockstep::ps {
namespace {

using std::chrono::milliseconds;

constexpr int kTries = 3;
// For another primary, after the first try and after others: more than the coordinator takes to replace one.
constexpr milliseconds kFirstWait{1000};
constexpr milliseconds kNextWait{5000};
constexpr milliseconds kLook{200};  // whether one was replaced

// One call, to a server or a group's primary.
struct Asked {
  std::size_t place = 0;
  GroupView view = {};  // without replication: none
  PendingCall call = {};
};

// A server that is stopped does not answer, and its connection stays: ends the calls to those that were replaced.
std::jthread watch(const ViewKeeper& keeper, std::vector<Asked>& asked) {
  return start_thread("lockstep:asks", [&](const std::stop_token& stop) {
    std::mutex mu;
    std::condition_variable_any never;
    while (!stop.stop_requested()) {
      const auto views = keeper.views();
      for (auto& one : asked)
        if (views[one.place].primary_incarnation != one.view.primary_incarnation) one.call.cancel();
      std::unique_lock lock(mu);
      never.wait_for(lock, stop, kLook, [] { return false; });
    }
  });
}

class Asking {
 public:
  Asking(const Connections& connections, const Question& question, const Deadline& deadline)
      : connections_(connections), question_(question), deadline_(deadline), epochs_(connections.servers.size()) {}

  std::vector<std::string> run() {
    std::vector<std::string> replies(epochs_.size());
    std::vector<std::size_t> left(epochs_.size());
    std::iota(left.begin(), left.end(), std::size_t{0});
    for (int tries = 0; !left.empty(); ++tries) {
      std::vector<Asked> asked;
      for (const auto place : left) asked.push_back(start(place, tries));
      left.clear();
      const auto watcher = connections_.keeper == nullptr ? std::jthread() : watch(*connections_.keeper, asked);
      std::optional<Error> first_error;
      for (auto& one : asked) {
        try {
          replies[one.place] = one.call.wait()->fields();
        } catch (const Error& error) {
          const bool may_pass = error.code() == ErrorCode::kUnavailable || error.code() == ErrorCode::kCancelled;
          epochs_[one.place] = one.view.epoch;
          if (connections_.keeper != nullptr && may_pass && tries + 1 < kTries) left.push_back(one.place);
          else if (!first_error) first_error = error;
        }
      }
      if (first_error) throw Error(*first_error);
    }
    return replies;
  }

 private:
  Asked start(std::size_t place, int tries) const {
    Asked asked{place};
    if (connections_.keeper == nullptr) {
      asked.call = connections_.servers[place]->start(question_.method, {question_.fields(place, tries)}, deadline_);
      return asked;
    }
    const auto group = static_cast<std::uint32_t>(place);
    const auto wait = tries == 0 ? milliseconds(0) : tries == 1 ? kFirstWait : kNextWait;
    asked.view = connections_.keeper->view_after(group, epochs_[place], Deadline::after(wait));
    if (asked.view.is_lost()) throw Error(ErrorCode::kDataLoss, asked.view.lost);
    const GroupCall call{group, asked.view.epoch, question_.method, question_.fields(place, tries)};
    asked.call = connections_.servers[asked.view.primary]->start(methods::kGroupCall, {to_bytes(call)}, deadline_);
    return asked;
  }

  // Const after construction.
  const Connections& connections_;
  const Question& question_;
  const Deadline deadline_;

  // Used only by run().
  std::vector<std::uint64_t> epochs_;  // in which the last try has failed
};

}  // namespace

std::vector<std::string> ask_all(const Connections& connections, const Question& question, const Deadline& deadline) {
  return Asking(connections, question, deadline).run();
}

}  // namespace lockstep::ps

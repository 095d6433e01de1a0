#pragma once

#include <chrono>
#include <condition_variable>
#include <cstddef>
#include <map>
#include <mutex>
#include <optional>
#include <string>

#include "lockstep/ps/rpc.h"
#include "lockstep/ps/sync_messages.h"

namespace lockstep::ps {

struct StepArbiterOptions {
  // A worker that gave a gradient gives another one to the same step when nobody has worked on it for so long. Who has worked
  // for more than eight times as long as others do, or for longer than `straggler`, is not waited for: he is maybe lost.
  std::chrono::nanoseconds patience = std::chrono::seconds(1);
  std::chrono::nanoseconds straggler = std::chrono::seconds(30);
};

// Which gradients count: the arbiter's part of Note [synchronous steps], for any number of models. Thread-safe.
class StepArbiter {
 public:
  explicit StepArbiter(const StepArbiterOptions& options = {}) : options_(options) {}
  StepArbiter(const StepArbiter&) = delete;
  StepArbiter& operator=(const StepArbiter&) = delete;

  std::map<std::string, Method> methods();

  StepState look(const StepLookRequest& request);
  // Once for each contribution: one that comes again gets the same answer. Throws kInvalidArgument for a step that needs no
  // gradient or more than kMostNeeded.
  StepCommitReply commit(const StepCommitRequest& request);
  void open(const StepOpenRequest& request);

  static constexpr std::uint32_t kMostNeeded = 65'536;
  static constexpr std::size_t kMostModels = 1'024;
  static constexpr std::size_t kMostClients = 4'096;  // whose last contribution is remembered

 private:
  using Clock = std::chrono::steady_clock;
  struct Verdict {
    std::uint64_t number = 0;
    bool is_counted = false;
    Clock::time_point when = {};
  };
  struct Model {
    std::uint64_t step = 0;
    bool is_closed = false;
    int repeats = 0;                                               // steps on end that had two gradients of one worker
    std::optional<std::chrono::nanoseconds> usual = std::nullopt;  // how long a gradient takes
    std::vector<Contribution> counted = {};
    std::map<std::uint32_t, Clock::time_point> working = {};  // since when
    std::map<std::uint64_t, Verdict> verdicts = {};           // by client
    Clock::time_point changed = Clock::now();
  };

  // With mu_ held.
  Model& model_of(const std::string& name);
  std::chrono::nanoseconds longest_work(const Model& model) const;
  void note_end(Model& model, std::uint32_t worker) const;
  bool may_begin(const Model& model, const std::optional<std::uint32_t>& worker) const;
  bool decide(Model& model, const StepCommitRequest& request);
  StepState state_of(const Model& model) const;

  // Const after construction.
  const StepArbiterOptions options_;

  std::mutex mu_;
  std::condition_variable changed_;
  // Guarded by mu_.
  std::map<std::string, Model> models_;
  int waiting_ = 0;
};

}  // namespace lockstep::ps

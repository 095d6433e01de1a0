#pragma once

#include <cstdint>
#include <exception>
#include <functional>
#include <memory>
#include <optional>
#include <string>

#include "lockstep/base/error.h"
#include "lockstep/train/logs.h"

namespace lockstep {

class Model;
class StepStats;
class Trackable;
namespace metrics {
enum class Direction;
}

// How far a fit() is.
struct TrainingProgress {
  int epoch = 0;                   // the one that is under way, from 0
  int epochs = 1;                  // where training ends
  std::int64_t step = 0;           // steps of this epoch that are done
  std::int64_t steps = -2;         // of an epoch; data::kUnknown (-2) in the first pass over data that does not tell
  std::int64_t iterations = 0;     // updates of the weights, in this fit() and those before
  std::int64_t examples = 0;       // of this epoch, over all replicas of the job
  bool is_between_updates = true;  // no step has left gradients for a later update
  bool is_preempted = false;       // a worker has been told to go: this step is the last
  bool is_chief = true;            // the worker that writes files and shows progress
  bool has_validation = false;     // some epochs' logs have values of validation, "val_loss"
};

// A fit() that is under way, as callbacks see it. All workers make the same calls in the same order.
class Training {
 public:
  // How it reaches the model; for tests of callbacks any functions do.
  struct Reach {
    std::function<Logs()> logs = nullptr;
    std::function<Logs()> all_logs = nullptr;
    std::function<double()> learning_rate = nullptr;
    std::function<void(double)> set_learning_rate = nullptr;
    std::function<std::shared_ptr<Trackable>()> trackable = nullptr;
    const StepStats* step_stats = nullptr;
    std::function<bool()> is_failing = nullptr;
    std::function<metrics::Direction(const std::string&)> direction = nullptr;
  };

  Training(Model* model, TrainingProgress& progress, Reach reach)
      : model_(model), progress_(progress), reach_(std::move(reach)) {}
  Training(const Training&) = delete;
  Training& operator=(const Training&) = delete;

  Model& model() const { return *model_; }
  int epoch() const noexcept { return progress_.epoch; }
  int epochs() const noexcept { return progress_.epochs; }
  std::int64_t step() const noexcept { return progress_.step; }
  std::int64_t steps() const noexcept { return progress_.steps; }
  std::int64_t iterations() const noexcept { return progress_.iterations; }
  std::int64_t examples() const noexcept { return progress_.examples; }
  bool is_chief() const noexcept { return progress_.is_chief; }
  bool has_validation() const noexcept { return progress_.has_validation; }
  bool is_preempted() const noexcept { return progress_.is_preempted; }
  bool is_between_updates() const noexcept { return progress_.is_between_updates; }
  TrainingProgress& progress() noexcept { return progress_; }

  // The running values of this epoch, worked out when asked for: over the replicas of this worker. (on_epoch_end gets those
  // of the whole job.)
  Logs logs() const { return reach_.logs(); }
  // The same over all workers, which must all ask at the same step.
  Logs all_logs() const { return reach_.all_logs(); }

  // Of the optimizer, in all replicas; set_learning_rate is kInvalidArgument under a schedule. All workers must set the
  // same.
  double learning_rate() const { return reach_.learning_rate(); }
  void set_learning_rate(double rate) { reach_.set_learning_rate(rate); }

  // Which way a value of the logs is better, as the metric says that it comes from; kUnknown of any other.
  metrics::Direction direction(const std::string& name) const {
    return reach_.direction ? reach_.direction(name) : metrics::Direction{};
  }

  // Where the time of this epoch's steps went, by worker; null: not measured.
  const StepStats* step_stats() const noexcept { return reach_.step_stats; }
  // Where training is and what the callbacks remember, for a Checkpoint: see training_checkpoint().
  std::shared_ptr<Trackable> trackable() const { return reach_.trackable(); }

  // Ends training after the step or epoch that is under way; with several workers, of which one may ask alone, all end after
  // the same step.
  void stop() { is_stopping_ = true; }
  bool is_stopping() const noexcept { return is_stopping_; }
  // The same, and fit() throws.
  void fail(const Error& why) {
    if (!failure_) failure_ = why;
    stop();
  }
  // The same for what a callback has thrown, which fit() throws again here; other workers get an Error with its text.
  void fail(const std::exception_ptr& thrown);
  const std::optional<Error>& failure() const noexcept { return failure_; }
  const std::exception_ptr& thrown() const noexcept { return thrown_; }
  // Whether it is so on any worker; all must ask at the same step. Who saves does: what a failed step has left is not kept.
  bool is_failing() const { return reach_.is_failing ? reach_.is_failing() : failure_.has_value(); }

 private:
  // Const after construction.
  Model* const model_;
  TrainingProgress& progress_;
  const Reach reach_;

  // Used only on the thread that called fit().
  bool is_stopping_ = false;
  std::optional<Error> failure_;
  std::exception_ptr thrown_;  // when that is what the failure was
};

}  // namespace lockstep

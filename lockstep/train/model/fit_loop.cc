#include "lockstep/train/model/fit_loop.h"

#include <bit>

#include "lockstep/base/first_error.h"
#include "lockstep/base/log.h"
#include "lockstep/base/number.h"
#include "lockstep/base/on_exit.h"
#include "lockstep/base/str.h"
#include "lockstep/collective/worker_group.h"
#include "lockstep/data/node.h"
#include "lockstep/strategy/strategy.h"
#include "lockstep/train/model/leave_together.h"
#include "lockstep/train/preemption.h"

namespace lockstep::internal {
namespace {

void require_usable(const FitOptions& options, bool is_hosted) {
  const auto refuse = [](const std::string& message) { throw Error(ErrorCode::kInvalidArgument, "fit: " + message); };
  if (options.epochs < 0 || options.initial_epoch < 0)
    refuse(str("epochs is ", options.epochs, ", initial_epoch ", options.initial_epoch, "; they must not be negative"));
  const bool is_until_end = is_hosted && options.steps_per_epoch == kUntilDataEnds;
  if (options.steps_per_epoch && *options.steps_per_epoch < 1 && !is_until_end)
    refuse(str("steps_per_epoch is ", *options.steps_per_epoch, "; it must be at least 1, or absent for a pass over the data"));
  if (options.validation_steps && *options.validation_steps < 1)
    refuse(str("validation_steps is ", *options.validation_steps, "; it must be at least 1, or absent"));
  if (options.validation_steps && !options.validation_data)
    refuse(str("validation_steps is ", *options.validation_steps,
               ", and there is no validation_data; give it, or leave them out"));
  if (options.validation_freq < 1) refuse(str("validation_freq is ", options.validation_freq, "; it must be at least 1"));
}

// A fit() as a part of a checkpoint. It lives shorter than the loop.
class FitPart : public Trackable {
 public:
  explicit FitPart(FitLoop& loop) : loop_(loop) {}
  CheckpointPart save() override { return loop_.save(); }
  void restore(const CheckpointPart& part) override { loop_.restore(part); }
  std::vector<std::string> problems(const CheckpointPart& part) const override { return loop_.problems(part); }

 private:
  FitLoop& loop_;
};

Callbacks with_progress(const Callbacks& given, Verbose verbose) {
  Callbacks callbacks = given;
  const bool has_bar =
      std::ranges::any_of(given, [](const auto& one) { return dynamic_cast<const ProgressBar*>(one.get()) != nullptr; });
  if (!has_bar && verbose != Verbose::kSilent) callbacks.add(ProgressBar(verbose));
  callbacks.put_in_order();
  return callbacks;
}

}  // namespace

FitLoop::FitLoop(Model& model, const FitOptions& options)
    : model_(model),
      options_(options),
      runner_(runner_of(model, "fit")),
      workers_(replicas_of(model).workers()),
      callbacks_(with_progress(options.callbacks, options.verbose)),
      stats_(workers_ == nullptr ? 1 : workers_->layout().size()),
      training_(&model, progress_,
                {[this] { return logs_so_far(true); }, [this] { return logs_so_far(false); },
                 [this] { return learning_rate_of(model_); }, [this](double rate) { set_learning_rate_of(model_, rate); },
                 [this] { return std::make_shared<FitPart>(*this); }, &stats_,
                 [this] { return is_any(training_.failure().has_value()); },
                 [this](const std::string& name) { return direction_of(name); }}) {
  require_usable(options, model.state().hosted != nullptr);
}

metrics::Direction FitLoop::direction_of(const std::string& logged) const {
  const auto name = logged.starts_with("val_") ? logged.substr(4) : logged;
  const auto found = std::ranges::find(runner_.metrics(), name, &TrackedMetric::name);
  return found == runner_.metrics().end() ? metrics::Direction::kUnknown : found->metric.rule().direction();
}

template <typename F>
void FitLoop::tell(F&& call) {
  for (const auto& callback : callbacks_) guarded(workers_, training_, [&] { call(*callback); });
}

Logs FitLoop::logs_so_far(bool is_local) {
  if (hosted_) hosted_->sums().show(runner_);
  return is_local ? runner_.local_logs() : runner_.logs();
}

void FitLoop::begin_hosted(const ModelData& data) {
  auto& link = *model_.state().hosted;
  require_late_callbacks(callbacks_, "fit");
  hosted_.emplace(link, data, options_);
  if (options_.validation_data)
    hosted_validation_.emplace(link, *options_.validation_data, options_.validation_steps, "fit: validation_steps");
  progress_.steps = hosted_->steps() == kUntilDataEnds ? data::kUnknown : hosted_->steps();
}

void FitLoop::begin_here(const ModelData& data) {
  if (data.creator() != nullptr && !options_.steps_per_epoch)
    throw Error(ErrorCode::kInvalidArgument,
                "fit: steps_per_epoch is needed with a DatasetCreator; say how many steps an epoch has");
  if (data.distributed() != nullptr && !options_.steps_per_epoch && model_.strategy().num_replicas_in_sync() > 1)
    throw Error(
        ErrorCode::kInvalidArgument,
        "fit: a DistributedDataset was given without steps_per_epoch; say how many steps an epoch has, or give the dataset "
        "itself, which fit() distributes");
  data_ = distribute(model_.strategy(), data);
  if (!options_.steps_per_epoch) require_finite(*data_, "fit", "give steps_per_epoch");
  if (options_.validation_data) validation_ = distribute(model_.strategy(), *options_.validation_data);
  if (validation_ && !options_.validation_steps) require_finite(*validation_, "fit: validation_data", "give validation_steps");
  progress_.steps = options_.steps_per_epoch.value_or(data_->cardinality());
}

void FitLoop::begin(const ModelData& data) {
  if (model_.state().hosted != nullptr) begin_hosted(data);
  else begin_here(data);
  progress_.epoch = options_.initial_epoch;
  progress_.epochs = options_.epochs;
  progress_.iterations = runner_.iterations();
  progress_.has_validation = options_.validation_data.has_value();
  progress_.is_chief = replicas_of(model_).first_replica() == 0;
  runner_.set_class_weight(options_.class_weight);
  runner_.forget_gradients();
}

History FitLoop::run(const ModelData& data) {
  require_idle(model_, "fit");
  begin(data);
  model_.state().is_fitting = true;
  const OnExit leave([this] {
    model_.state().is_fitting = false;
    runner_.set_class_weight({});
  });
  try {
    return run_epochs();
  } catch (...) {
    tell_failure();
    throw;
  }
}

void FitLoop::tell_failure() noexcept {
  for (const auto& callback : callbacks_) {
    try {
      callback->on_train_failed(training_);
    } catch (...) {
      log_warning(str("a callback failed after fit() had: ", describe(std::current_exception())));
    }
  }
}

History FitLoop::run_epochs() {
  History history;
  // Whoever brings back an earlier state does it before the others begin.
  for (const bool keepers : {true, false})
    tell([&](Callback& one) {
      if ((one.turn() == Turn::kKeeps) == keepers) one.on_train_begin(training_);
    });
  agree_on_stop();
  while (progress_.epoch < progress_.epochs && !training_.is_stopping()) {
    train_epoch();
    agree_on_stop();
    end_epoch(history);
    if (training_.is_stopping()) break;
    ++progress_.epoch;
  }
  if (runner_.has_optimizer()) runner_.optimizer().use_averages();
  tell([&](Callback& one) { one.on_train_end(training_); });
  agree_on_stop();
  return history;
}

void FitLoop::train_epoch() {
  if (!std::exchange(is_resumed_, false)) {
    progress_.step = progress_.examples = 0;
    runner_.reset();
    if (hosted_) hosted_->sums() = {};
    else if (!iterator_ || !options_.steps_per_epoch) iterator_.emplace(data_->make_iterator());
  }
  first_step_ = progress_.step;
  stats_.reset();
  tell([&](Callback& one) { one.on_epoch_begin(training_); });
  runner_.set_mode(true);
  model_.state().is_in_epoch = true;
  const OnExit leave([this] { model_.state().is_in_epoch = false; });
  clock_.end_step();  // what came between the epochs belongs to no step
  if (hosted_) train_on_workers();
  else
    while (!options_.steps_per_epoch || progress_.step < *options_.steps_per_epoch)
      if (!step()) break;
  runner_.flush();
  progress_.iterations = runner_.iterations();
  if (progress_.step == 0)
    throw Error(ErrorCode::kInvalidArgument,
                "fit: the data has no batch; is a file empty, or does batch() drop the remainder?");
  progress_.steps = progress_.step;
}

// Of this epoch, until it ends or a callback wants a pause; absent: until the data ends.
std::optional<std::int64_t> FitLoop::steps_to_pause() const {
  std::optional<std::int64_t> steps;
  if (hosted_->steps() != kUntilDataEnds) steps = hosted_->steps() - progress_.step;
  for (const auto& callback : callbacks_)
    if (const auto wanted = callback->steps_until_pause(); wanted > 0) steps = std::min(wanted, steps.value_or(wanted));
  return steps;
}

void FitLoop::note_hosted(const StepCounts& counts) {
  ++progress_.step;
  progress_.examples += counts.rows;
  runner_.note_update_elsewhere(counts.mean_loss());
  progress_.iterations = runner_.iterations();
  tell([&](Callback& one) { one.on_train_batch_end(training_); });
}

void FitLoop::train_on_workers() {
  if (progress_.step > 0) pull_hosted(model_);  // an epoch that is gone on with may have no step left
  const auto is_over = [this] { return hosted_->steps() != kUntilDataEnds && progress_.step >= hosted_->steps(); };
  for (bool goes_on = true; goes_on && !is_over();) {
    // Callbacks hear of each step when the next has ended, and of the last one in the pause.
    std::optional<StepCounts> last;
    goes_on = hosted_->run({.epoch = progress_.epoch, .steps = steps_to_pause(), .on_end = [&](const StepCounts& counts) {
                              if (last) note_hosted(*last);
                              last = counts;
                              return !training_.is_stopping() && (progress_.is_preempted || !is_preempted());
                            }});
    if (is_preempted() && !progress_.is_preempted) progress_.is_preempted = goes_on = true;
    pull_hosted(model_);  // callbacks look at the weights
    if (last) note_hosted(*last);
    if (training_.is_stopping()) goes_on = false;
  }
}

std::optional<DistributedIterator::Batch> FitLoop::next_batch() {
  auto batch = iterator_->next();
  if (batch || !options_.steps_per_epoch) return batch;
  iterator_.emplace(data_->make_iterator());
  return iterator_->next();
}

// What all workers say; the rows of the whole batch.
std::int64_t FitLoop::meet(const DistributedIterator::Batch& batch) {
  const auto news = exchange_news(workers_, {.rows = static_cast<double>(StepRunner::rows_of(batch)),
                                             .is_stopping = training_.is_stopping() ? 1.0 : 0.0,
                                             .is_preempted = is_preempted() ? 1.0 : 0.0,
                                             .times = last_times_});
  clock_.enter(StepPhase::kCompute);
  double rows = 0;
  std::vector<StepTimes> times;
  for (const auto& one : news) {
    rows += one.rows;
    times.push_back(one.times);
    if (workers_ != nullptr && one.is_stopping != 0) is_told_to_stop_ = true;
    if (one.is_preempted != 0) progress_.is_preempted = true;
  }
  if (progress_.step > first_step_) stats_.add(times);
  return static_cast<std::int64_t>(rows);
}

// False at the end of the epoch or of training.
bool FitLoop::step() {
  clock_.enter(StepPhase::kInput);
  const auto batch = next_batch();
  if (!batch) return false;
  const auto rows = meet(*batch);
  tell([&](Callback& one) { one.on_train_batch_begin(training_); });
  runner_.train(*batch, rows);
  clock_.enter(StepPhase::kOther);
  ++progress_.step;
  progress_.examples += rows;
  progress_.iterations = runner_.iterations();
  progress_.is_between_updates = runner_.is_between_updates();
  tell([&](Callback& one) {
    if (one.turn() >= Turn::kSaves) clock_.enter(StepPhase::kCheckpoint);
    one.on_train_batch_end(training_);
  });
  last_times_ = clock_.end_step();
  if (workers_ == nullptr) return !training_.is_stopping();
  // What all do after a step that all know to be the last needs no agreement.
  if (progress_.is_preempted && training_.is_stopping()) is_told_to_stop_ = true;
  if (is_told_to_stop_) training_.stop();
  return !is_told_to_stop_;
}

void FitLoop::end_epoch(History& history) {
  auto logs = logs_so_far(false);
  validate(logs);
  if (is_any(is_preempted())) progress_.is_preempted = true;
  is_between_epochs_ = true;
  for (const auto& one : callbacks_) {
    guarded(workers_, training_, [&] { one->on_epoch_end(training_, logs); });
    share(logs);
  }
  is_between_epochs_ = false;
  history.epoch.push_back(progress_.epoch);
  history.logs.push_back(logs);
  agree_on_stop();
}

// What a callback has added on the chief alone is known to all, who may stop or save because of it.
void FitLoop::share(Logs& logs) const {
  if (workers_ == nullptr) return;
  std::string text;
  for (const auto& [name, value] : logs) text += str(name, '\0', std::bit_cast<std::uint64_t>(value), '\0');
  const auto chiefs = workers_->exchange("the logs of an epoch", text)[0];
  if (chiefs == text) return;
  for (std::size_t at = 0; at < chiefs.size();) {
    const auto end = chiefs.find('\0', at), last = chiefs.find('\0', end + 1);
    logs.set(chiefs.substr(at, end - at),
             std::bit_cast<double>(*whole_number<std::uint64_t>(std::string_view(chiefs).substr(end + 1, last - end - 1))));
    at = last + 1;
  }
}

void FitLoop::validate(Logs& logs) {
  if ((!validation_ && !hosted_validation_) || (progress_.epoch + 1) % options_.validation_freq != 0) return;
  const auto kept = progress_;
  EvaluateOptions options{.steps = options_.validation_steps, .callbacks = callbacks_};
  logs.add(hosted_validation_ ? hosted_validation_->run(runner_, callbacks_, training_)
                              : evaluate(model_, *validation_, options, training_),
           "val_");
  progress_ = kept;
}

// Whether it holds on any worker; all ask.
bool FitLoop::is_any(bool here) const {
  return std::ranges::any_of(exchange_news(workers_, {.is_stopping = here ? 1.0 : 0.0}),
                             [](const StepNews& one) { return one.is_stopping != 0; });
}

// All workers come here after the same step. Where one of them has failed, all throw its error.
void FitLoop::agree_on_stop() {
  if (!is_any(training_.is_stopping())) return;
  training_.stop();
  throw_if_failed(workers_, training_);
}

}  // namespace lockstep::internal

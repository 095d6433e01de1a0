#include "lockstep/train/model/hosted_link.h"

#include <torch/torch.h>

#include <array>
#include <chrono>
#include <list>

#include "lockstep/base/first_error.h"
#include "lockstep/base/log.h"
#include "lockstep/base/str.h"
#include "lockstep/data/made_ahead.h"
#include "lockstep/strategy/parameter_server_strategy.h"
#include "lockstep/train/callbacks/values.h"
#include "lockstep/train/model/hosted_model.h"
#include "lockstep/train/model/hosted_weights.h"
#include "lockstep/train/model/model_state.h"

namespace lockstep::internal {
namespace {

constexpr std::size_t kStepsAhead = 16;  // for each worker: enough to keep it busy, and little to wait for when training stops
constexpr std::chrono::milliseconds kLook(20);
constexpr std::int64_t kShardsForEachWorker = 5;

std::vector<std::string> texts_of(const std::vector<Metric>& metrics) {
  std::vector<std::string> texts;
  for (const auto& metric : metrics) texts.push_back(metric.to_text());
  return texts;
}

TrainerRecipe recipe_of(const CompileOptions& options) {
  TrainerRecipe recipe{.loss_weights = options.loss_weights,
                       .metrics = texts_of(options.metrics),
                       .weighted_metrics = texts_of(options.weighted_metrics),
                       .precision = options.precision,
                       .global_clipnorm = options.optimizer.rules().global_clipnorm};
  for (const auto& loss : options.loss.list()) recipe.losses.push_back(loss.to_text());
  for (const auto& metrics : options.output_metrics) recipe.output_metrics.push_back(texts_of(metrics));
  return recipe;
}

// `is_whole`: all of it on every worker, whatever a function would divide.
PerWorkerValues<data::Dataset> on_workers(HostedLink& link, const ModelData& data, bool is_whole, const std::string& what) {
  const auto* creator = data.creator();
  if (creator == nullptr)
    throw Error(
        ErrorCode::kUnimplemented,
        str(what,
            ": a dataset cannot be sent to the workers of a ParameterServerStrategy, because of the functions in it; give "
            "a DatasetCreator with a function that makes it, or tensors"));
  if (const auto& rows = creator->rows())
    return link.coordinator.create_per_worker_resource(
        [](const std::vector<at::Tensor>& tensors, std::int64_t batch_size, bool is_shuffled) {
          return batches_of(tensors, batch_size, is_shuffled);
        },
        rows->tensors, rows->batch_size, rows->is_shuffled);
  return link.coordinator.create_per_worker_resource(
      [](WorkerContext& worker, const std::string& function, bool is_all) {
        auto context = worker.input_context();
        if (is_all) context.num_input_pipelines = 1, context.input_pipeline_id = 0;
        return data::internal::made_ahead(dataset_function(function)(context));
      },
      creator->name(), is_whole);
}

// `places`: where each worker goes on; one that has none begins.
PerWorkerValues<HostedInput> inputs_of(HostedLink& link, const PerWorkerValues<data::Dataset>& data, HostedInput::End end,
                                       const std::vector<InputPlace>& places) {
  return link.coordinator.create_per_worker_resource(
      [](WorkerContext& worker, const data::Dataset& dataset, HostedInput::End where, const std::vector<InputPlace>& begin) {
        const auto index = static_cast<std::size_t>(worker.worker_index());
        return std::make_shared<HostedInput>(dataset, where, index < begin.size() ? begin[index] : InputPlace{});
      },
      data, end, places);
}

StepCounts train_next(WorkerContext& worker, HostedTrainer& trainer, HostedInput& input, std::int64_t epoch) {
  const auto batch = input.next(epoch);
  auto counts = batch ? trainer.train(*batch) : StepCounts{.is_end = true};
  counts.worker = worker.worker_index();
  counts.place = input.place();
  return counts;
}

std::string of_worker(std::size_t worker, const char* what) { return str("worker/", worker, "/", what); }

struct StepPlan {
  std::function<RemoteValue<StepCounts>(std::int64_t step)> schedule;
  std::optional<std::int64_t> steps;              // absent: until on_end says no
  std::function<bool(const StepCounts&)> on_end;  // whether to go on
};

// What a step counted. Its error may only say that another one failed first: that one's is thrown.
StepCounts result_of(const RemoteValue<StepCounts>& step, ClusterCoordinator& coordinator) {
  try {
    return step.get();
  } catch (...) {
    const auto mine = std::current_exception();
    coordinator.join();
    std::rethrow_exception(mine);
  }
}

// Until it has ended, or it is time to look at the others.
void wait_a_little(const RemoteValue<StepCounts>& step) {
  try {
    step.get(Deadline::after(kLook));
  } catch (...) {
    // Its end is looked at where all are.
  }
}

// Afterwards nothing that was scheduled here runs.
void run_steps(ClusterCoordinator& coordinator, const StepPlan& plan) {
  std::list<RemoteValue<StepCounts>> running;
  bool goes_on = true;
  const auto take_ended = [&] {
    for (auto step = running.begin(); step != running.end();) {
      if (step->status() == RemoteValueStatus::kNotReady) {
        ++step;
        continue;
      }
      const auto counts = result_of(*step, coordinator);
      step = running.erase(step);
      if (!plan.on_end(counts)) goes_on = false;
    }
  };
  // A slow worker's step is passed by: the others go on.
  const auto wait_for_room = [&](std::size_t most) {
    for (take_ended(); running.size() > most; take_ended()) wait_a_little(running.front());
  };
  try {
    for (std::int64_t step = 0; goes_on && step != plan.steps; ++step) {
      running.push_back(plan.schedule(step));
      wait_for_room(kStepsAhead * coordinator.num_workers());
    }
    wait_for_room(0);
  } catch (...) {
    const auto first = std::current_exception();
    try {
      coordinator.join();
    } catch (...) {
      log_warning(str("after a step had failed: ", describe(std::current_exception())));
    }
    std::rethrow_exception(first);
  }
  coordinator.join();
}

std::int64_t steps_of(const ModelData& data, const FitOptions& options) {
  if (options.steps_per_epoch) return *options.steps_per_epoch;
  const auto* creator = data.creator();
  if (creator == nullptr || !creator->rows())
    throw Error(ErrorCode::kInvalidArgument,
                "fit: steps_per_epoch is needed with a DatasetCreator, whose data nobody counts; say how many steps of all "
                "workers an epoch has, or kUntilDataEnds (-1)");
  const auto& rows = *creator->rows();
  return std::max<std::int64_t>(1, (rows.tensors[0].size(0) + rows.batch_size - 1) / rows.batch_size);
}

}  // namespace

PerWorkerValues<HostedTrainer> HostedLink::trainers(const std::map<std::int64_t, double>& class_weight) {
  if (class_weight.empty() && unweighted) return *unweighted;
  if (!copies) copies = make_copies();
  auto own = recipe;
  own.class_weight = class_weight;
  const auto made = coordinator.create_per_worker_resource(
      [](HostedCopy& copy, const TrainerRecipe& given) { return std::make_shared<HostedTrainer>(copy, given); }, *copies, own);
  if (class_weight.empty()) unweighted = made;
  return made;
}

double HostedLink::learning_rate(std::int64_t iterations) const {
  return has_schedule() ? optimizer->rules().learning_rate.at(iterations) : rate;
}

void HostedLink::change_learning_rate(double wanted) {
  set_learning_rate(wanted);
  rate = wanted;
}

void compile_hosted(HostedLink& link, const CompileOptions& options, const torch::nn::Module& module) {
  const auto refuse = [](const char* what) {
    throw Error(ErrorCode::kUnimplemented, str("compile: under a ParameterServerStrategy ", what));
  };
  const auto& rules = options.optimizer.rules();
  if (options.train_step)
    refuse("a train_step of one's own cannot be sent to workers; schedule closures with a ClusterCoordinator");
  if (options.steps_per_update != 1 || rules.gradient_accumulation_steps)
    refuse(
        "every step is an update, of whichever worker has it; leave out steps_per_update and gradient_accumulation_steps, and "
        "make batches larger");
  if (rules.use_ema) refuse("no moving averages of the weights are kept (use_ema)");
  if (rules.global_clipnorm && has_tables(module))
    refuse(
        "global_clipnorm cannot be used with a HostedEmbedding, whose rows' gradients go to the servers by themselves; use "
        "clipnorm or clipvalue");
  if (options.pss_evaluation_shards < kAutoShards)
    throw Error(ErrorCode::kInvalidArgument, str("compile: pss_evaluation_shards is ", options.pss_evaluation_shards,
                                                 "; it is a number of shards, 0 for none, or kAutoShards (-1)"));
  auto recipe = recipe_of(options);
  auto on_servers = rules;
  on_servers.global_clipnorm.reset();
  auto optimizer = options.optimizer.with_rules(on_servers);
  const auto text = optimizer.to_text();
  if (text != link.optimizer_text || !link.copies) link.set_optimizer(optimizer);
  if (!link.optimizer || text != link.optimizer_text) link.rate = rules.learning_rate.at(0);
  link.optimizer_text = text;
  link.optimizer = std::move(optimizer);
  link.recipe = std::move(recipe);
  link.unweighted.reset();
  link.evaluation_shards = options.pss_evaluation_shards;
}

void require_late_callbacks(const Callbacks& callbacks, const char* what) {
  const auto found = callbacks.batch_level();
  if (found.empty()) return;
  const auto& first = *found[0];
  throw Error(
      ErrorCode::kInvalidArgument,
      str(what, ": the callback ", ps::readable_name(typeid(first).name()),
          " must be told of every step at its end, and under a ParameterServerStrategy steps run on workers, several at "
          "once; use on_epoch_begin and on_epoch_end, or override can_be_late() where late is early enough"));
}

void HostedSums::add(const StepCounts& counts) {
  losses_.resize(std::max(losses_.size(), counts.losses.size()), 0.0);
  for (std::size_t k = 0; k < counts.losses.size(); ++k) losses_[k] += counts.losses[k];
  metrics_.resize(std::max(metrics_.size(), counts.metrics.size()));
  for (std::size_t m = 0; m < counts.metrics.size(); ++m) {
    auto& sum = metrics_[m];
    for (std::size_t k = 0; k < counts.metrics[m].size(); ++k)
      if (k < sum.size()) sum[k] = sum[k] + counts.metrics[m][k];
      else sum.push_back(counts.metrics[m][k]);
  }
}

void HostedSums::show(StepRunner& runner) const {
  runner.reset();
  if (!losses_.empty()) runner.set_loss_sums(losses_);
  for (std::size_t m = 0; m < metrics_.size(); ++m)
    if (!metrics_[m].empty()) runner.metrics()[m].metric.set_state(metrics_[m]);
}

void HostedSums::take(StepRunner& runner) {
  losses_ = runner.loss_sums();
  metrics_.clear();
  for (const auto& tracked : runner.metrics()) metrics_.push_back(tracked.metric.state());
}

HostedEpochs::HostedEpochs(HostedLink& link, const ModelData& data, const FitOptions& options)
    : link_(link),
      data_(on_workers(link, data, /*is_whole=*/false, "fit")),
      trainers_(link.trainers(options.class_weight)),
      steps_(steps_of(data, options)) {
  if (steps_ == kUntilDataEnds)
    log_warning(
        "fit: steps_per_epoch is kUntilDataEnds: an epoch ends when the data of one worker has ended, wherever the others are");
}

bool HostedEpochs::run(const Stretch& stretch) {
  if (!inputs_)
    inputs_ =
        inputs_of(link_, data_, steps_ == kUntilDataEnds ? HostedInput::End::kOfData : HostedInput::End::kOfPass, places_);
  bool goes_on = true;
  const auto on_end = [&](const StepCounts& counts) {
    const auto worker = static_cast<std::size_t>(counts.worker);
    places_.resize(std::max(places_.size(), worker + 1));
    places_[worker] = counts.place;
    if (!counts.is_end) sums_.add(counts);
    if (counts.is_end || !stretch.on_end(counts)) goes_on = false;
    return goes_on;
  };
  run_steps(link_.coordinator, {.schedule =
                                    [&](std::int64_t) {
                                      return link_.coordinator.schedule(
                                          [](WorkerContext& worker, HostedTrainer& trainer, HostedInput& input,
                                             std::int64_t epoch) { return train_next(worker, trainer, input, epoch); },
                                          trainers_, *inputs_, stretch.epoch);
                                    },
                                .steps = stretch.steps,
                                .on_end = on_end});
  return goes_on;
}

void HostedEpochs::save(CheckpointPart& part, bool is_between) const {
  for (std::size_t worker = 0; worker < places_.size(); ++worker) {
    auto place = places_[worker];
    // The next epoch is a new pass.
    if (is_between && steps_ == kUntilDataEnds && place.batches > 0) place = {place.passes + 1, 0};
    put(part, of_worker(worker, "passes"), static_cast<double>(place.passes));
    put(part, of_worker(worker, "batches"), static_cast<double>(place.batches));
  }
}

void HostedEpochs::restore(const CheckpointPart& part) {
  places_.clear();
  inputs_.reset();
  for (std::size_t worker = 0; part.values.contains(of_worker(worker, "passes")); ++worker)
    places_.push_back({static_cast<std::int64_t>(get(part, of_worker(worker, "passes"))),
                       static_cast<std::int64_t>(get(part, of_worker(worker, "batches")))});
}

namespace {

bool is_by_shards(const HostedLink& link, const ModelData& data, std::optional<std::int64_t> steps, const char* what) {
  if (steps) return false;
  const bool has_rows = data.creator() != nullptr && data.creator()->rows();
  if (link.evaluation_shards == 0 && !has_rows && data.creator() != nullptr)
    throw Error(ErrorCode::kInvalidArgument,
                str(what,
                    " are needed with a DatasetCreator, whose data nobody counts; or compile with pss_evaluation_shards, which "
                    "looks at each shard of the data once"));
  return true;
}

std::int64_t shards_of(const HostedLink& link) {
  if (link.evaluation_shards > 0) return link.evaluation_shards;
  return kShardsForEachWorker * static_cast<std::int64_t>(link.coordinator.num_workers());
}

}  // namespace

HostedEvaluation::HostedEvaluation(HostedLink& link, const ModelData& data, std::optional<std::int64_t> steps, const char* what)
    : link_(link),
      steps_(steps),
      shards_(is_by_shards(link, data, steps, what) ? shards_of(link) : 0),
      data_(on_workers(link, data, /*is_whole=*/shards_ > 0, what)),
      trainers_(link.trainers({})) {}

RemoteValue<StepCounts> HostedEvaluation::schedule(std::int64_t step) {
  if (!steps_)
    return link_.coordinator.schedule(
        [](WorkerContext& worker, HostedTrainer& trainer, const data::Dataset& data, std::array<std::int64_t, 2> shard) {
          if (data.cardinality() == data::kInfinite)
            throw Error(ErrorCode::kInvalidArgument,
                        "evaluate: the data has no end (repeat()?), so that no shard of it has; give steps");
          return trainer.test_all(data.shard(shard[1], shard[0]), worker.cancelled());
        },
        trainers_, data_, std::array{step, shards_});
  return link_.coordinator.schedule([](HostedTrainer& trainer, HostedInput& input) { return trainer.test(*input.next(0)); },
                                    trainers_, *inputs_);
}

Logs HostedEvaluation::run(StepRunner& runner, const Callbacks& callbacks, Training& training) {
  auto& progress = training.progress();
  progress.step = progress.examples = 0;
  progress.steps = steps_.value_or(shards_);
  for (const auto& callback : callbacks) callback->on_test_begin(training);
  if (steps_) inputs_ = inputs_of(link_, data_, HostedInput::End::kOfPass, {});
  HostedSums sums;
  runner.reset();
  run_steps(link_.coordinator, {.schedule = [&](std::int64_t step) { return schedule(step); },
                                .steps = progress.steps,
                                .on_end =
                                    [&](const StepCounts& counts) {
                                      sums.add(counts);
                                      ++progress.step;
                                      progress.examples += counts.rows;
                                      for (const auto& callback : callbacks) callback->on_test_batch_end(training);
                                      return true;
                                    }});
  if (progress.examples == 0)
    throw Error(ErrorCode::kInvalidArgument,
                "evaluate: the data has no batch; is a file empty, or does batch() drop the remainder?");
  sums.show(runner);
  const auto logs = runner.logs();
  for (const auto& callback : callbacks) callback->on_test_end(training, logs);
  return logs;
}

StepCounts run_on_batch(HostedLink& link, const data::Element& batch, bool is_training) {
  std::vector<at::Tensor> tensors;
  for (std::size_t i = 0; i < batch.size(); ++i) tensors.push_back(batch[i]);
  const auto step = link.coordinator.schedule(
      [](HostedTrainer& trainer, const std::vector<at::Tensor>& given, bool trains) {
        const data::Element element(given);
        return trains ? trainer.train(element) : trainer.test(element);
      },
      link.trainers({}), tensors, is_training);
  return result_of(step, link.coordinator);
}

ParameterServerStrategy& strategy_of(const ps::ServerVariables& servers) {
  const auto replicas = servers.replicas();
  auto* strategy = replicas == nullptr ? nullptr : dynamic_cast<ParameterServerStrategy*>(replicas->strategy());
  if (strategy == nullptr)
    throw Error(ErrorCode::kFailedPrecondition,
                "Model: the strategy of the hosted module is gone; keep it as long as the model is used");
  return *strategy;
}

std::shared_ptr<ModuleReplicas> coordinators_copy(ParameterServerStrategy& strategy,
                                                  const std::shared_ptr<torch::nn::Module>& module) {
  const auto scope = strategy.scope();
  return std::make_shared<ModuleReplicas>([&] { return module; });
}

}  // namespace lockstep::internal

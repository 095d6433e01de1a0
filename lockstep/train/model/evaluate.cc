#include <ATen/ATen.h>
#include <c10/core/GradMode.h>

#include "lockstep/base/log.h"
#include "lockstep/base/str.h"
#include "lockstep/strategy/default_strategy.h"
#include "lockstep/strategy/strategy.h"
#include "lockstep/train/model/leave_together.h"
#include "lockstep/train/model/model_state.h"
#include "lockstep/train/model/step_news.h"

// Evaluation and prediction.

namespace lockstep {
namespace {

// The outputs of one step, of all replicas of the job in their order, on the CPU.
void append_outputs(Strategy& strategy, const PerReplica<Tensors>& outputs, std::vector<Tensors>& all) {
  if (all.empty()) all.resize(outputs.values()[0].size());
  for (std::size_t k = 0; k < all.size(); ++k) {
    std::vector<at::Tensor> parts;
    for (const auto& tensors : outputs.values()) parts.push_back(tensors.at(k));
    all[k].push_back(strategy.gather(PerReplica<at::Tensor>(std::move(parts)), 0).to(at::kCPU));
  }
}

// In the place of no rows, of which not every module can say what comes out.
at::Tensor one_row_like(const at::Tensor& empty) {
  auto sizes = empty.sizes().vec();
  if (!sizes.empty()) sizes[0] = 1;
  return at::zeros(sizes, empty.options());
}

Tensors predict_replica(const Model::State& state, const data::Element& element) {
  const auto count = state.forward.inputs > 0 ? state.forward.inputs : element.size();
  if (element.size() < count)
    throw Error(ErrorCode::kInvalidArgument,
                lockstep::str("predict: the module takes ", count, " inputs, and an element has fewer: ", element));
  const bool has_rows = element[0].dim() == 0 || element[0].size(0) > 0;
  Tensors inputs;
  for (std::size_t i = 0; i < count; ++i) inputs.push_back(has_rows ? element[i] : one_row_like(element[i]));
  const c10::NoGradGuard no_grad;
  auto outputs = state.runner != nullptr ? state.runner->call_forward(inputs) : state.forward.call(inputs);
  if (!has_rows)
    for (auto& output : outputs) output = output.narrow(0, 0, 0);
  return outputs;
}

}  // namespace

Logs Model::evaluate(const ModelData& data, const EvaluateOptions& options) {
  auto& runner = internal::runner_of(*this, "evaluate");
  if (options.steps && *options.steps < 1)
    throw Error(ErrorCode::kInvalidArgument, str("evaluate: steps is ", *options.steps, "; it must be at least 1, or absent"));
  TrainingProgress progress;
  progress.is_chief = internal::replicas_of(*this).first_replica() == 0;
  Training training(
      this, progress,
      {[&] { return runner.local_logs(); }, [&] { return runner.logs(); }, [&] { return internal::learning_rate_of(*this); },
       [&](double rate) { internal::set_learning_rate_of(*this, rate); }});
  auto shown = options;
  if (options.verbose != Verbose::kSilent) shown.callbacks.add(ProgressBar(options.verbose));
  if (state_->hosted != nullptr) {
    internal::require_late_callbacks(shown.callbacks, "evaluate");
    return internal::HostedEvaluation(*state_->hosted, data, options.steps, "evaluate: steps")
        .run(runner, shown.callbacks, training);
  }
  const internal::EvaluationScope scope(*this);
  const auto distributed = internal::distribute(strategy(), data);
  if (!options.steps) internal::require_finite(distributed, "evaluate", "give steps");
  auto logs = internal::evaluate(*this, distributed, shown, training);
  internal::throw_if_failed(internal::replicas_of(*this).workers(), training);
  return logs;
}

Logs Model::evaluate(const at::Tensor& x, const at::Tensor& y, const EvaluateOptions& options) {
  return evaluate(internal::data_of(*this, {{x, y}, options.batch_size, false}), options);
}

at::Tensor Model::predict(const ModelData& data) {
  auto outputs = predict_all(data);
  if (outputs.size() != 1)
    throw Error(ErrorCode::kInvalidArgument,
                str("predict: the module gives ", outputs.size(), " outputs; predict_all() returns them all"));
  return outputs[0];
}

at::Tensor Model::predict(const at::Tensor& x, std::int64_t batch_size) {
  return predict(internal::batches_of({x}, batch_size, false));
}

Tensors Model::predict_all(const ModelData& data) {
  internal::pull_hosted(*this);
  if (data.dataset() != nullptr && data.dataset()->options().auto_shard_policy == AutoShardPolicy::kFile &&
      internal::replicas_of(*this).workers() != nullptr)
    log_warning("predict: the dataset asks to be divided by FILE, which loses the order of the rows; it is divided by DATA");
  // A coordinator reads for itself alone.
  auto& reader = state_->hosted != nullptr ? default_strategy() : strategy();
  const auto distributed = internal::distribute(reader, data, AutoShardPolicy::kData);
  internal::require_finite(distributed, "predict", "take() as many batches as are wanted");
  const internal::EvaluationScope scope(*this);
  std::vector<Tensors> all;
  const auto predict_one = [&](ReplicaContext&, const data::Element& element) { return predict_replica(*state_, element); };
  const auto predict_batch = [&](const DistributedIterator::Batch& batch) {
    if (state_->hosted == nullptr) return strategy().run(predict_one, batch);
    Tensors outputs;  // run() would warn its user of a coordinator that works itself
    internal::replicas_of(*this).run([&](ReplicaContext& context) { outputs = predict_one(context, batch.values()[0]); });
    return PerReplica<Tensors>(std::vector<Tensors>{outputs});
  };
  for (auto iterator = distributed.make_iterator(); auto batch = iterator.next();)
    append_outputs(strategy(), predict_batch(*batch), all);
  if (all.empty())
    throw Error(ErrorCode::kInvalidArgument,
                "predict: the data has no batch; is a file empty, or does batch() drop the remainder?");
  Tensors outputs;
  for (const auto& parts : all) outputs.push_back(at::cat(parts, 0));
  return outputs;
}

namespace internal {

Logs evaluate(Model& model, const DistributedDataset& data, const EvaluateOptions& options, Training& training) {
  auto& runner = runner_of(model, "evaluate");
  auto& progress = training.progress();
  progress.step = progress.examples = 0;
  progress.steps = options.steps.value_or(data.cardinality());
  runner.reset();
  runner.set_mode(false);
  auto* const workers = replicas_of(model).workers();
  const auto tell = [&](const auto& call) {
    for (const auto& callback : options.callbacks) guarded(workers, training, [&] { call(*callback); });
  };
  tell([&](Callback& one) { one.on_test_begin(training); });
  auto iterator = data.make_iterator();
  while (!options.steps || progress.step < *options.steps) {
    const auto batch = iterator.next();
    if (!batch) {
      if (options.steps && progress.step > 0 && progress.is_chief)
        log_once(LogLevel::kWarning, str("evaluate: the data ended after ", progress.step, " of ", *options.steps,
                                         " steps; the values are those of what there was. repeat() makes data without an end"));
      break;
    }
    double rows = 0;
    for (const auto& news : exchange_news(workers, {.rows = static_cast<double>(StepRunner::rows_of(*batch))}))
      rows += news.rows;
    runner.test(*batch, static_cast<std::int64_t>(rows));
    ++progress.step;
    progress.examples += static_cast<std::int64_t>(rows);
    tell([&](Callback& one) { one.on_test_batch_end(training); });
  }
  if (progress.step == 0)
    throw Error(ErrorCode::kInvalidArgument,
                "evaluate: the data has no batch; is a file empty, or does batch() drop the remainder?");
  progress.steps = progress.step;
  const auto logs = runner.logs();
  tell([&](Callback& one) { one.on_test_end(training, logs); });
  return logs;
}

}  // namespace internal
}  // namespace lockstep

#pragma once

#include <concepts>
#include <cstdint>
#include <functional>
#include <initializer_list>
#include <string>
#include <utility>
#include <vector>

#include "lockstep/train/losses/loss.h"
#include "lockstep/train/metrics/metric.h"
#include "lockstep/train/optimizers/optimizer_spec.h"

namespace lockstep {

class TrainStep;

// The numbers that the module computes with. The weights stay as they are; LibTorch's autocast converts what is worth it.
enum class Precision {
  kFloat32,   // as the weights are
  kBFloat16,  // on CPU and GPU
  kFloat16,   // on GPUs: the loss is scaled, and steps whose gradients overflow are left out
};

// One loss for each output of the model; one given alone is the first output's.
class LossList {
 public:
  LossList() = default;
  template <typename L>
  requires std::convertible_to<L, Loss> LossList(L&& loss)
      : list_{Loss(std::forward<L>(loss))} {}  // NOLINT: one loss is a list
  LossList(std::initializer_list<Loss> losses) : list_(losses) {}

  void add(Loss loss) { list_.push_back(std::move(loss)); }
  const std::vector<Loss>& list() const noexcept { return list_; }

 private:
  std::vector<Loss> list_;
};

constexpr std::int64_t kAutoShards = -1;

// What Model::compile takes.
struct CompileOptions {
  OptimizerSpec optimizer = "rmsprop";
  LossList loss = {};
  // By output; empty: 1 each.
  std::vector<double> loss_weights = {};
  // Of the first output. An object that is given in several places counts in the first, and its copies in the others.
  std::vector<Metric> metrics = {};
  // The same, with the sample weights.
  std::vector<Metric> weighted_metrics = {};
  // By output, for models with several: {{"accuracy"}, {"mae"}}.
  std::vector<std::vector<Metric>> output_metrics = {};
  // So many batches are one update of the weights, with the mean of their gradients. What is left over at the end of an epoch
  // is an update too. It is the same as the optimizer's gradient_accumulation_steps; only one of them may be given.
  std::int64_t steps_per_update = 1;
  Precision precision = Precision::kFloat32;
  // Under a ParameterServerStrategy: evaluation and validation divide the data into so many shards, of which each is looked at
  // exactly once, also when workers are lost meanwhile; the function of a DatasetCreator is told that it is the only one, and
  // must give the same batches everywhere. kAutoShards: five for each worker. Where a number of steps is given, and with 0, so
  // many steps are scheduled on whichever workers are free, which may see examples twice or not at all.
  std::int64_t pss_evaluation_shards = 0;
  // Replaces what a replica does in a training step: see TrainStep.
  std::function<void(TrainStep&)> train_step = nullptr;
};

}  // namespace lockstep

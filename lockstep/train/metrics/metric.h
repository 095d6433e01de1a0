#pragma once

#include <ATen/core/Tensor.h>

#include <cstddef>
#include <functional>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "lockstep/train/losses/loss.h"
#include "lockstep/train/metrics/metric_rule.h"

namespace lockstep::metrics {

// A number over many batches. A handle: copies share the state.
//
//   ls::Metric accuracy = "accuracy";
//   strategy.run([&](torch::Tensor x, torch::Tensor y) { accuracy.update_state(y, model->forward(x)); }, batch);
//   const double so_far = accuracy.result().item<double>();
//
// Every replica counts for itself, without waiting for anybody; a result outside run() is that of the sum over all
// replicas, so it is exact whatever part of a batch each of them had. States are float64.
//
// Inside run() a call means the replica's own part. Outside, one thread at a time, and not while a run() goes on.
// A metric belongs to the strategy whose replicas use it, until reset_state(): another's are kFailedPrecondition.
class Metric {
 public:
  // By Keras's name: "accuracy", "mse", "AUC", "auc", ... "accuracy" and "acc" count binary, categorical or sparse
  // categorical matches, as the shapes of labels and predictions ask for. Throws kInvalidArgument for a name that does not
  // exist, and offers the nearest.
  Metric(const char* name);         // NOLINT: a name is a metric
  Metric(const std::string& name);  // NOLINT: a name is a metric

  // One's own: by rule, or the mean over all examples of what a function or a loss gives for each.
  Metric(std::string name, std::shared_ptr<const MetricRule> rule);
  Metric(std::string name, losses::Loss::Function function);
  template <losses::FunctionByType F>
  Metric(std::string name, F function)
      : Metric(named(losses::NamedFunction<F>::kName, Metric(std::move(name), losses::Loss::Function(function)))) {}
  Metric(const losses::Loss& loss);  // NOLINT: a loss is a metric

  const std::string& name() const noexcept;
  const MetricRule& rule() const noexcept { return *shared_rule(); }
  const std::shared_ptr<const MetricRule>& shared_rule() const noexcept;
  // Whether what is counted in one is counted in the other: one is a copy of the other.
  bool shares_state_with(const Metric& other) const noexcept { return state_ == other.state_; }
  // The same metric under another name, with a state of its own.
  Metric renamed(std::string name) const;

  // Counts a batch: (y_true, y_pred, sample_weight), or in a metric of values (values, sample_weight). `sample_weight`
  // undefined: all examples count the same. A batch of no rows changes nothing.
  void update_state(const at::Tensor& first, const at::Tensor& second = {}, const at::Tensor& third = {});

  // Over all replicas, of all workers, which must all ask. Inside run() this replica's. Throws kFailedPrecondition where
  // nothing was counted and the result's shape is unknown.
  at::Tensor result() const;
  // Over this process's replicas; nobody else is asked.
  at::Tensor local_result() const;

  // Back to the beginning: outside run() everywhere, inside this replica's part.
  void reset_state();

  // For checkpoints: the sums over all replicas of all workers, which must all ask (nothing when nothing was counted and
  // the shapes are unknown), and back: the first replica of the job gets them, the others begin at 0. Outside run().
  std::vector<at::Tensor> state() const;
  void set_state(const std::vector<at::Tensor>& state);
  // The part of one of this process's replicas; empty when it has counted nothing.
  std::vector<at::Tensor> replica_state(std::size_t replica) const;

  // As text (JSON) that another task of the job makes the same metric of, with a state of its own. to_text() throws
  // kUnimplemented for a rule of one's own and for a function that captures something; from_text() as Loss::from_text().
  std::string to_text() const;
  static Metric from_text(const std::string& text);

  // For those who make metrics: how text describes it, without the name.
  using Description = losses::Loss::Description;
  Metric described(Description description) const;

  struct State;

 private:
  static Metric named(const std::string& function, const Metric& metric);
  std::vector<at::Tensor> sum(bool over_workers) const;
  at::Tensor result_of(const std::vector<at::Tensor>& state) const;

  std::shared_ptr<State> state_;
};

}  // namespace lockstep::metrics

namespace lockstep {
using metrics::Metric;
using metrics::MetricRule;
}  // namespace lockstep

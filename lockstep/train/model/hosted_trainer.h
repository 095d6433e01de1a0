#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <stop_token>
#include <string>
#include <utility>
#include <vector>

#include "lockstep/data/dataset.h"
#include "lockstep/fwd.h"
#include "lockstep/train/model/compile_options.h"
#include "lockstep/train/model/forward.h"

// What a worker has of a Model over a hosted module. Workers never see compile(): what a step needs comes as text.

namespace lockstep::internal {

class StepRunner;

// What compile() and fit() were told, as it is sent.
struct TrainerRecipe {
  std::vector<std::string> losses = {};  // Loss::to_text()
  std::vector<double> loss_weights = {};
  std::vector<std::string> metrics = {};  // Metric::to_text()
  std::vector<std::string> weighted_metrics = {};
  std::vector<std::vector<std::string>> output_metrics = {};
  Precision precision = Precision::kFloat32;
  // Of all gradients of a step; the servers, which see one variable each, do the other clippings.
  std::optional<double> global_clipnorm = std::nullopt;
  std::map<std::int64_t, double> class_weight = {};
};

// What one step has counted; sums, that can be added to others'.
struct StepCounts {
  std::int64_t rows = 0;
  std::vector<double> losses = {};  // StepRunner::loss_sums()
  std::vector<std::vector<at::Tensor>> metrics = {};
  bool is_end = false;  // there was no batch any more

  double mean_loss() const { return rows > 0 ? losses[0] / static_cast<double>(rows) : 0.0; }
};

// A worker's copy of the module, whatever its type. Used only on the thread that runs closures.
class HostedCopy : public std::enable_shared_from_this<HostedCopy> {
 public:
  HostedCopy(std::shared_ptr<ModuleReplicas> module, Forward forward)
      : module_(std::move(module)), forward_(std::move(forward)) {}
  virtual ~HostedCopy() = default;

  virtual void pull() = 0;    // weights, from the servers
  virtual void push() = 0;    // gradients, to the servers
  virtual void forget() = 0;  // gradients of a step that failed

  const std::shared_ptr<ModuleReplicas>& module() const noexcept { return module_; }
  const Forward& forward() const noexcept { return forward_; }

 private:
  const std::shared_ptr<ModuleReplicas> module_;
  const Forward forward_;
};

// A worker's pass over its data. Used only on the thread that runs closures.
class HostedInput {
 public:
  // `is_endless`: where a pass ends the next begins.
  HostedInput(data::Dataset dataset, bool is_endless);

  // Nothing at the end of the data. Throws kInvalidArgument where there is none at all, or no end where one is needed.
  std::optional<data::Element> next();

 private:
  const data::Dataset dataset_;
  const bool is_endless_;
  std::optional<data::Iterator> iterator_;
};

// A compiled model on a worker. Used only on the thread that runs closures.
class HostedTrainer {
 public:
  HostedTrainer(HostedCopy& copy, const TrainerRecipe& recipe);
  ~HostedTrainer();

  // With the servers' weights as they are now. train() sends its gradients before it returns.
  StepCounts train(const data::Element& batch);
  StepCounts test(const data::Element& batch);
  // All batches of a dataset. Throws kCancelled when it is asked to end.
  StepCounts test_all(const data::Dataset& batches, const std::stop_token& cancelled);

 private:
  void push();
  void begin(bool is_training);
  StepCounts counts() const;

  // Const after construction.
  const std::shared_ptr<HostedCopy> copy_;
  const std::optional<double> global_clipnorm_;

  std::unique_ptr<StepRunner> runner_;
};

}  // namespace lockstep::internal

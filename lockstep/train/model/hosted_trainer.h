#pragma once

#include <c10/core/Device.h>

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

// Where a worker's data is.
struct InputPlace {
  std::int64_t passes = 0;   // that were read before this one
  std::int64_t batches = 0;  // of this pass that were taken
};

// What one step has counted; sums, that can be added to others'.
struct StepCounts {
  std::int64_t rows = 0;
  std::vector<double> losses = {};  // StepRunner::loss_sums()
  std::vector<std::vector<at::Tensor>> metrics = {};
  bool is_end = false;  // there was no batch any more
  // Which worker's step it was, and where that one's data is now. -1: the batch was given.
  std::int64_t worker = -1;
  InputPlace place = {};

  double mean_loss() const { return rows > 0 ? losses[0] / static_cast<double>(rows) : 0.0; }
};

// What this worker's steps compute on: see Note [devices of hosted modules].
c10::Device workers_device();
// The module, moved there, as a StepRunner takes it.
std::shared_ptr<ModuleReplicas> workers_copy(const std::shared_ptr<torch::nn::Module>& module);

// A worker's copy of the module, whatever its type. Used only on the thread that runs closures.
//
// Note [devices of hosted modules]
// 1. Under fit() and the like a worker computes on its first device, a GPU where it has one (ServerOptions::devices): the
//    module is moved there when the first trainer is made, and batches are before each step. Weights come to it from the
//    servers, and gradients and counts go back, by way of the CPU.
// 2. It is one copy, whatever the number of the worker's devices: a step is a batch on one of them.
// 3. A `Hosted<M>&` that a closure of one's own takes is where M's constructor has made it, on the CPU, as the tensors that
//    closures are given; it may be moved with `net->to(device)`, and pull() and push() follow it.
class HostedCopy : public std::enable_shared_from_this<HostedCopy> {
 public:
  HostedCopy(std::shared_ptr<ModuleReplicas> module, Forward forward)
      : module_(std::move(module)), forward_(std::move(forward)), device_(workers_device()) {}
  virtual ~HostedCopy() = default;

  virtual void pull() = 0;    // weights, from the servers
  virtual void push() = 0;    // gradients, to the servers
  virtual void forget() = 0;  // gradients of a step that failed

  const std::shared_ptr<ModuleReplicas>& module() const noexcept { return module_; }
  const Forward& forward() const noexcept { return forward_; }
  c10::Device device() const noexcept { return device_; }

 private:
  // Const after construction.
  const std::shared_ptr<ModuleReplicas> module_;
  const Forward forward_;
  const c10::Device device_;
};

// A worker's passes over its data. Used only on the thread that runs closures.
class HostedInput {
 public:
  enum class End {
    kOfPass,  // where the data ends the next pass begins
    kOfData,  // each epoch is a pass
  };

  // `begin`: where it goes on: what comes before it is read again, and passed over. Data comes as it did if it is in the same
  // order each time, or in one that is drawn from a seed.
  HostedInput(data::Dataset dataset, End end, const InputPlace& begin = {});

  // Nothing at the end of the data of this epoch; epochs follow each other. Throws kInvalidArgument where there is none at all,
  // or no end where one is needed.
  std::optional<data::Element> next(std::int64_t epoch);
  const InputPlace& place() const noexcept { return place_; }

 private:
  void go_to(const InputPlace& place);
  void end_pass();

  // Const after construction.
  const data::Dataset dataset_;
  const End end_;
  const InputPlace begin_;

  std::optional<data::Iterator> iterator_;  // absent: no batch of this pass was taken
  std::optional<std::int64_t> epoch_;       // absent: before the first batch
  InputPlace place_;
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

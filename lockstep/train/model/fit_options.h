#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <utility>
#include <variant>

#include "lockstep/data/dataset.h"
#include "lockstep/data/distributed_dataset.h"
#include "lockstep/train/callbacks/callback.h"
#include "lockstep/train/callbacks/progress_bar.h"
#include "lockstep/train/model/dataset_creator.h"

namespace lockstep {

// What a model reads: a dataset of global batches, which is divided between the replicas, or one that is distributed already,
// or a function that makes it where it is read.
//
// The components of an element are, in this order: the inputs, as many as the module's forward() takes; the targets, one for
// each loss; and, if there are more, the sample weights, one for all outputs or one for each.
class ModelData {
 public:
  ModelData(data::Dataset dataset) : data_(std::move(dataset)) {}               // NOLINT: either is data
  ModelData(DistributedDataset distributed) : data_(std::move(distributed)) {}  // NOLINT
  ModelData(DatasetCreator creator) : data_(std::move(creator)) {}              // NOLINT
  template <internal::MakesDataset F>
  ModelData(const F& function) : data_(DatasetCreator(function)) {}  // NOLINT

  const data::Dataset* dataset() const noexcept { return std::get_if<data::Dataset>(&data_); }
  const DistributedDataset* distributed() const noexcept { return std::get_if<DistributedDataset>(&data_); }
  const DatasetCreator* creator() const noexcept { return std::get_if<DatasetCreator>(&data_); }

 private:
  std::variant<data::Dataset, DistributedDataset, DatasetCreator> data_;
};

constexpr std::int64_t kUntilDataEnds = -1;

struct FitOptions {
  int epochs = 1;
  int initial_epoch = 0;  // go on counting from here
  // Steps of an epoch: epochs then go on in the data where the last one ended. Absent: an epoch is a pass over the data. A
  // DistributedDataset over several replicas needs it, and a DatasetCreator. Under a ParameterServerStrategy it counts the
  // steps of all workers together, and kUntilDataEnds ends an epoch when the data of one worker has ended.
  std::optional<std::int64_t> steps_per_epoch = std::nullopt;

  std::optional<ModelData> validation_data = std::nullopt;
  // Absent: all of it. More than there are is a warning; without validation_data it is kInvalidArgument.
  std::optional<std::int64_t> validation_steps = std::nullopt;
  int validation_freq = 1;  // every so many epochs

  // By class (an integer target, or the largest of a one-hot one): how much an example counts in the loss. Classes that are
  // not listed count 1. kInvalidArgument: weights that are NaN or infinite, targets that are no classes, and a model with
  // several outputs, which has sample weights for that.
  std::map<std::int64_t, double> class_weight = {};

  Callbacks callbacks = {};
  Verbose verbose = Verbose::kAuto;

  // Only for tensors:
  std::int64_t batch_size = 32;  // the global one
  bool shuffle = true;
  double validation_split = 0;  // this part of the rows, from the end, is for validation
};

struct EvaluateOptions {
  // Absent: all; more than there are is a warning. Under a ParameterServerStrategy that is by shards: see
  // CompileOptions::pss_evaluation_shards.
  std::optional<std::int64_t> steps = std::nullopt;
  Callbacks callbacks = {};
  Verbose verbose = Verbose::kSilent;
  std::int64_t batch_size = 32;  // only for tensors
};

}  // namespace lockstep

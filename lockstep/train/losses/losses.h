#pragma once

#include <cstdint>
#include <optional>
#include <string>

#include "lockstep/train/losses/loss.h"

// Keras's losses, by function. Each is also known by name: Loss("mean_squared_error").
//
//   model.compile({.loss = ls::sparse_categorical_crossentropy({.from_logits = true})});

namespace lockstep::losses {

struct LossOptions {
  Reduction reduction = Reduction::kSumOverBatchSize;
};

// Over the last dimension, of the differences of predictions and labels: the mean of their squares, absolute values, ...
Loss mean_squared_error(const LossOptions& options = {});
Loss mean_absolute_error(const LossOptions& options = {});
Loss mean_absolute_percentage_error(const LossOptions& options = {});  // of the labels
Loss mean_squared_logarithmic_error(const LossOptions& options = {});
Loss log_cosh(const LossOptions& options = {});

struct HuberOptions {
  double delta = 1.0;  // errors beyond it count in a line, not squared; above 0
  Reduction reduction = Reduction::kSumOverBatchSize;
};
Loss huber(const HuberOptions& options = {});

// -1 (the same direction) to 1.
struct CosineSimilarityOptions {
  std::int64_t axis = -1;
  Reduction reduction = Reduction::kSumOverBatchSize;
};
Loss cosine_similarity(const CosineSimilarityOptions& options = {});

// Labels are -1 and 1; where all labels are 0 or 1 they are taken as -1 and 1.
Loss hinge(const LossOptions& options = {});
Loss squared_hinge(const LossOptions& options = {});
Loss categorical_hinge(const LossOptions& options = {});  // labels are one-hot

Loss kl_divergence(const LossOptions& options = {});
Loss poisson(const LossOptions& options = {});

// Labels are probabilities (0 and 1, mostly), predictions too, or with `from_logits` what becomes one by a sigmoid.
struct BinaryCrossentropyOptions {
  bool from_logits = false;
  double label_smoothing = 0.0;  // in [0, 1]
  std::int64_t axis = -1;        // of the mean
  Reduction reduction = Reduction::kSumOverBatchSize;
};
Loss binary_crossentropy(const BinaryCrossentropyOptions& options = {});

struct BinaryFocalCrossentropyOptions {
  bool apply_class_balancing = false;
  double alpha = 0.25;
  double gamma = 2.0;
  bool from_logits = false;
  double label_smoothing = 0.0;
  std::int64_t axis = -1;
  Reduction reduction = Reduction::kSumOverBatchSize;
};
Loss binary_focal_crossentropy(const BinaryFocalCrossentropyOptions& options = {});

// Labels are one-hot (or probabilities), of the predictions' shape. Predictions are probabilities, or with `from_logits`
// what becomes them by a softmax.
struct CategoricalCrossentropyOptions {
  bool from_logits = false;
  double label_smoothing = 0.0;
  std::int64_t axis = -1;  // of the classes
  Reduction reduction = Reduction::kSumOverBatchSize;
};
Loss categorical_crossentropy(const CategoricalCrossentropyOptions& options = {});

struct CategoricalFocalCrossentropyOptions {
  double alpha = 0.25;
  double gamma = 2.0;
  bool from_logits = false;
  double label_smoothing = 0.0;
  std::int64_t axis = -1;
  Reduction reduction = Reduction::kSumOverBatchSize;
};
Loss categorical_focal_crossentropy(const CategoricalFocalCrossentropyOptions& options = {});

// Labels are class numbers, of the predictions' shape without the axis of the classes. On the CPU a label that is no class
// is kInvalidArgument; on a GPU it ends the program, as LibTorch's own loss does.
struct SparseCategoricalCrossentropyOptions {
  bool from_logits = false;
  std::optional<std::int64_t> ignore_class = std::nullopt;  // labels that do not count: their loss is 0, means leave them out
  std::int64_t axis = -1;                                   // of the classes: 1 for LibTorch's images
  Reduction reduction = Reduction::kSumOverBatchSize;
};
Loss sparse_categorical_crossentropy(const SparseCategoricalCrossentropyOptions& options = {});

// Labels are class numbers; 0 < q < 1, larger for labels with more noise.
struct CategoricalGeneralizedCrossEntropyOptions {
  double q = 0.5;
  Reduction reduction = Reduction::kSumOverBatchSize;
};
Loss categorical_generalized_cross_entropy(const CategoricalGeneralizedCrossEntropyOptions& options = {});

// Of images' areas. `axis`: the dimension to sum over; absent: all, which gives one number.
struct DiceOptions {
  std::optional<std::int64_t> axis = std::nullopt;
  Reduction reduction = Reduction::kSumOverBatchSize;
};
Loss dice(const DiceOptions& options = {});

struct TverskyOptions {
  double alpha = 0.5;  // of what was missed
  double beta = 0.5;   // of what was wrongly found
  std::optional<std::int64_t> axis = std::nullopt;
  Reduction reduction = Reduction::kSumOverBatchSize;
};
Loss tversky(const TverskyOptions& options = {});

}  // namespace lockstep::losses

namespace lockstep {
using losses::binary_crossentropy;
using losses::binary_focal_crossentropy;
using losses::categorical_crossentropy;
using losses::categorical_focal_crossentropy;
using losses::categorical_generalized_cross_entropy;
using losses::categorical_hinge;
using losses::cosine_similarity;
using losses::dice;
using losses::hinge;
using losses::huber;
using losses::kl_divergence;
using losses::log_cosh;
using losses::mean_absolute_error;
using losses::mean_absolute_percentage_error;
using losses::mean_squared_error;
using losses::mean_squared_logarithmic_error;
using losses::poisson;
using losses::sparse_categorical_crossentropy;
using losses::squared_hinge;
using losses::tversky;
}  // namespace lockstep

#include <ATen/ATen.h>

#include <limits>

#include "lockstep/base/error.h"
#include "lockstep/base/str.h"
#include "lockstep/collective/dense.h"
#include "lockstep/train/losses/align.h"
#include "lockstep/train/losses/loss_text.h"
#include "lockstep/train/losses/losses.h"

namespace lockstep::losses {
namespace {

void require_smoothing(const char* what, double smoothing) {
  if (smoothing >= 0 && smoothing <= 1) return;
  throw Error(ErrorCode::kInvalidArgument, str(what, ": label_smoothing is ", smoothing, "; it must be in [0, 1]"));
}

at::Tensor clipped(const at::Tensor& probabilities) { return probabilities.clamp(kEpsilon, 1 - kEpsilon); }

// Of every element.
at::Tensor binary(const at::Tensor& y_true, const at::Tensor& probabilities) {
  const auto p = clipped(probabilities);
  return -(y_true * p.log() + (1 - y_true) * (1 - p).log());
}

at::Tensor smoothed_binary(const at::Tensor& y_true, double smoothing) {
  return smoothing == 0 ? y_true : y_true * (1 - smoothing) + 0.5 * smoothing;
}

at::Tensor smoothed_classes(const at::Tensor& y_true, double smoothing) {
  return smoothing == 0 ? y_true : y_true * (1 - smoothing) + smoothing / static_cast<double>(y_true.size(-1));
}

at::Tensor mean_over(const char* what, const at::Tensor& values, std::int64_t axis) {
  return values.dim() == 0 ? values : values.mean(axis_of(what, axis, values));
}

// [rows, classes] and [rows]: one row for every label.
struct Rows {
  at::Tensor scores = {};
  at::Tensor labels = {};
  std::vector<std::int64_t> shape = {};  // of the labels
};

// Class numbers may come as floating-point numbers. What is no whole number is no class: an error, and on a GPU, which is not
// asked, a label that gives NaN.
at::Tensor class_numbers(const char* what, const at::Tensor& y_true) {
  if (!y_true.is_floating_point()) return y_true.to(at::kLong);
  constexpr double kMost = 1LL << 53;
  const auto is_whole = y_true.eq(y_true.trunc()).logical_and(y_true.abs().lt(kMost));
  if (y_true.is_cpu() && !is_whole.all().item<bool>()) {
    const auto first = is_whole.logical_not().reshape({-1}).nonzero()[0].item<std::int64_t>();
    throw Error(ErrorCode::kInvalidArgument,
                lockstep::str(what, ": label ", first, " is ", y_true.reshape({-1})[first].item<double>(),
                              ", which is no class; labels are class numbers: 0, 1, 2, ..."));
  }
  return at::where(is_whole, y_true, at::full_like(y_true, -1)).to(at::kLong);
}

Rows to_rows(const char* what, const at::Tensor& y_true, const at::Tensor& y_pred, std::int64_t axis) {
  if (!is_dense(y_true)) require_dense(y_true, lockstep::str(what, ", y_true").c_str());
  if (!is_dense(y_pred)) require_dense(y_pred, lockstep::str(what, ", y_pred").c_str());
  const auto classes = axis_of(what, axis, y_pred);
  auto scores = to_floating(y_pred);
  if (classes != y_pred.dim() - 1) scores = scores.movedim(classes, -1);
  auto labels = class_numbers(what, y_true).to(y_pred.device());
  if (labels.dim() == y_pred.dim() && labels.size(classes) == 1) labels = labels.squeeze(classes);
  if (labels.sizes() != scores.sizes().slice(0, static_cast<std::size_t>(scores.dim() - 1)))
    throw Error(ErrorCode::kInvalidArgument,
                lockstep::str(what, ": y_true has shape ", y_true.sizes(), ", y_pred ", y_pred.sizes(),
                              "; y_true must have y_pred's "
                              "shape without the axis of the classes (",
                              axis, "): one class number for each"));
  return {scores.reshape({-1, scores.size(-1)}), labels.reshape({-1}), labels.sizes().vec()};
}

// Throws kInvalidArgument if a label is no class; nothing when all are.
void require_classes(const char* what, const Rows& rows, std::int64_t ignored) {
  const auto labels = rows.labels.to(at::kCPU).contiguous();
  const auto classes = rows.scores.size(1);
  for (std::int64_t row = 0; row < labels.numel(); ++row) {
    const auto label = labels.data_ptr<std::int64_t>()[row];
    if ((label >= 0 && label < classes) || label == ignored) continue;
    throw Error(
        ErrorCode::kInvalidArgument,
        lockstep::str(what, ": the label of row ", row, " is ", label, "; there are ", classes, " classes, 0 to ", classes - 1,
                      ". Give the model an output for every class, or set ignore_class for labels that do not count"));
  }
}

// A GPU that is given such a label is lost for the process, and asking it first would make every step wait: the loss of that
// row is NaN there, as in TensorFlow.
at::Tensor negative_log_likelihood_on_device(const Rows& rows, std::int64_t ignored) {
  const auto is_class = rows.labels.ge(0).logical_and(rows.labels.lt(rows.scores.size(1))).logical_or(rows.labels.eq(ignored));
  const auto labels = at::where(is_class, rows.labels, at::zeros_like(rows.labels));
  const auto losses = at::nll_loss(at::log_softmax(rows.scores, -1), labels, {}, at::Reduction::None, ignored);
  return at::where(is_class, losses, at::full_like(losses, std::numeric_limits<double>::quiet_NaN()));
}

// Of every row; 0 where the label is `ignored`.
at::Tensor negative_log_likelihood(const char* what, const Rows& rows, std::int64_t ignored) {
  if (!rows.labels.is_cpu()) return negative_log_likelihood_on_device(rows, ignored);
  try {
    return at::nll_loss(at::log_softmax(rows.scores, -1), rows.labels, {}, at::Reduction::None, ignored);
  } catch (const c10::Error&) {
    require_classes(what, rows, ignored);
    throw;
  }
}

}  // namespace

Loss binary_crossentropy(const BinaryCrossentropyOptions& options) {
  constexpr const char* kName = "binary_crossentropy";
  require_smoothing(kName, options.label_smoothing);
  return Loss(
             kName,
             [options](const at::Tensor& labels, const at::Tensor& predictions) {
               const auto both = align_equal(kName, labels, predictions);
               const auto y_true = smoothed_binary(both.y_true, options.label_smoothing);
               return mean_over(kName,
                                options.from_logits
                                    ? at::binary_cross_entropy_with_logits(both.y_pred, y_true, {}, {}, at::Reduction::None)
                                    : binary(y_true, both.y_pred),
                                options.axis);
             },
             options.reduction)
      .described(loss_text(kName, options));
}

Loss binary_focal_crossentropy(const BinaryFocalCrossentropyOptions& options) {
  constexpr const char* kName = "binary_focal_crossentropy";
  require_smoothing(kName, options.label_smoothing);
  return Loss(
             kName,
             [options](const at::Tensor& labels, const at::Tensor& predictions) {
               const auto both = align_equal(kName, labels, predictions);
               const auto y_true = smoothed_binary(both.y_true, options.label_smoothing);
               const auto p = options.from_logits ? both.y_pred.sigmoid() : both.y_pred;
               const auto right = y_true * p + (1 - y_true) * (1 - p);
               auto loss = (1 - right).pow(options.gamma) * binary(y_true, p);
               if (options.apply_class_balancing) loss = (y_true * options.alpha + (1 - y_true) * (1 - options.alpha)) * loss;
               return mean_over(kName, loss, options.axis);
             },
             options.reduction)
      .described(loss_text(kName, options));
}

Loss categorical_crossentropy(const CategoricalCrossentropyOptions& options) {
  constexpr const char* kName = "categorical_crossentropy";
  require_smoothing(kName, options.label_smoothing);
  return Loss(
             kName,
             [options](const at::Tensor& labels, const at::Tensor& predictions) {
               const auto both = align_equal(kName, labels, predictions);
               const auto axis = axis_of(kName, options.axis, both.y_pred);
               const auto y_true = smoothed_classes(both.y_true, options.label_smoothing);
               const auto logs = options.from_logits ? at::log_softmax(both.y_pred, axis)
                                                     : clipped(both.y_pred / both.y_pred.sum(axis, /*keepdim=*/true)).log();
               return -(y_true * logs).sum(axis);
             },
             options.reduction)
      .described(loss_text(kName, options));
}

Loss categorical_focal_crossentropy(const CategoricalFocalCrossentropyOptions& options) {
  constexpr const char* kName = "categorical_focal_crossentropy";
  require_smoothing(kName, options.label_smoothing);
  return Loss(
             kName,
             [options](const at::Tensor& labels, const at::Tensor& predictions) {
               const auto both = align_equal(kName, labels, predictions);
               const auto axis = axis_of(kName, options.axis, both.y_pred);
               const auto y_true = smoothed_classes(both.y_true, options.label_smoothing);
               const auto scores = options.from_logits ? at::softmax(both.y_pred, axis) : both.y_pred;
               const auto p = clipped(scores / scores.sum(axis, /*keepdim=*/true));
               return ((1 - p).pow(options.gamma) * options.alpha * -y_true * p.log()).sum(axis);
             },
             options.reduction)
      .described(loss_text(kName, options));
}

Loss sparse_categorical_crossentropy(const SparseCategoricalCrossentropyOptions& options) {
  constexpr const char* kName = "sparse_categorical_crossentropy";
  return Loss::from_rule(
             kName,
             [options](const at::Tensor& y_true, const at::Tensor& y_pred) -> PerExample {
               auto rows = to_rows(kName, y_true, y_pred, options.axis);
               if (!options.from_logits) rows.scores = clipped(rows.scores).log();
               // LibTorch's own default, -100, would let such labels pass.
               const auto ignored = options.ignore_class.value_or(std::numeric_limits<std::int64_t>::min());
               PerExample losses{negative_log_likelihood(kName, rows, ignored).reshape(rows.shape)};
               if (options.ignore_class) losses.mask = (rows.labels != ignored).reshape(rows.shape);
               return losses;
             },
             options.reduction, options.ignore_class.has_value())
      .described(loss_text(kName, options));
}

Loss categorical_generalized_cross_entropy(const CategoricalGeneralizedCrossEntropyOptions& options) {
  constexpr const char* kName = "categorical_generalized_cross_entropy";
  if (!(options.q > 0 && options.q < 1))
    throw Error(ErrorCode::kInvalidArgument, str(kName, ": q is ", options.q, "; it must be between 0 and 1"));
  return Loss(
             kName,
             [options](const at::Tensor& y_true, const at::Tensor& y_pred) {
               const auto rows = to_rows(kName, y_true, y_pred, -1);
               if (rows.labels.is_cpu()) require_classes(kName, rows, std::numeric_limits<std::int64_t>::min());
               const auto p = rows.scores.gather(1, rows.labels.unsqueeze(1)).reshape(rows.shape);
               return (1 - p.pow(options.q)) / options.q;
             },
             options.reduction)
      .described(loss_text(kName, options));
}

}  // namespace lockstep::losses

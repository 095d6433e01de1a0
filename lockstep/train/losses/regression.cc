#include <ATen/ATen.h>

#include <cmath>

#include "lockstep/base/error.h"
#include "lockstep/base/str.h"
#include "lockstep/train/losses/align.h"
#include "lockstep/train/losses/loss_text.h"
#include "lockstep/train/losses/losses.h"

namespace lockstep::losses {
namespace {

// fn(y_true, y_pred) of what was brought to one dtype and rank.
template <typename Options, typename F>
Loss elementwise(const char* name, const Options& options, F fn) {
  return Loss(
             name,
             [name = std::string(name), fn](const at::Tensor& y_true, const at::Tensor& y_pred) {
               const auto both = align(name, y_true, y_pred);
               return fn(both.y_true, both.y_pred);
             },
             options.reduction)
      .described(loss_text(name, options));
}

// The mean over the last dimension; a scalar is its own.
at::Tensor mean_of_last(const at::Tensor& values) { return values.dim() == 0 ? values : values.mean(-1); }

// Both in one shape: LibTorch's fused losses want that for their gradients.
Aligned expanded(const at::Tensor& y_true, const at::Tensor& y_pred) {
  if (y_true.sizes() == y_pred.sizes()) return {y_true, y_pred};
  const auto both = at::broadcast_tensors({y_true, y_pred});
  return {both[0], both[1]};
}

at::Tensor as_signs(const at::Tensor& labels) {
  const auto is_binary = (labels == 0).logical_or(labels == 1).all();
  return at::where(is_binary, 2 * labels - 1, labels);
}

at::Tensor normalized(const at::Tensor& x, std::int64_t axis) {
  return x * x.square().sum(axis, /*keepdim=*/true).clamp_min(kEpsilon * kEpsilon).rsqrt();
}

}  // namespace

Loss mean_squared_error(const LossOptions& options) {
  return elementwise("mean_squared_error", options, [](const at::Tensor& y_true, const at::Tensor& y_pred) {
    const auto both = expanded(y_true, y_pred);
    return mean_of_last(at::mse_loss(both.y_pred, both.y_true, at::Reduction::None));
  });
}

Loss mean_absolute_error(const LossOptions& options) {
  return elementwise("mean_absolute_error", options,
                     [](const at::Tensor& y_true, const at::Tensor& y_pred) { return mean_of_last((y_pred - y_true).abs()); });
}

Loss mean_absolute_percentage_error(const LossOptions& options) {
  return elementwise("mean_absolute_percentage_error", options, [](const at::Tensor& y_true, const at::Tensor& y_pred) {
    return 100 * mean_of_last(((y_true - y_pred) / y_true.abs().clamp_min(kEpsilon)).abs());
  });
}

Loss mean_squared_logarithmic_error(const LossOptions& options) {
  return elementwise("mean_squared_logarithmic_error", options, [](const at::Tensor& y_true, const at::Tensor& y_pred) {
    const auto log_of = [](const at::Tensor& x) { return (x.clamp_min(kEpsilon) + 1).log(); };
    return mean_of_last((log_of(y_pred) - log_of(y_true)).square());
  });
}

Loss log_cosh(const LossOptions& options) {
  return elementwise("log_cosh", options, [](const at::Tensor& y_true, const at::Tensor& y_pred) {
    const auto x = y_pred - y_true;
    return mean_of_last(x + at::softplus(-2 * x) - std::log(2.0));
  });
}

Loss huber(const HuberOptions& options) {
  if (!(options.delta > 0))
    throw Error(ErrorCode::kInvalidArgument, str("huber: delta is ", options.delta, "; it must be above 0"));
  return elementwise("huber", options, [delta = options.delta](const at::Tensor& y_true, const at::Tensor& y_pred) {
    const auto both = expanded(y_true, y_pred);
    return mean_of_last(at::huber_loss(both.y_pred, both.y_true, at::Reduction::None, delta));
  });
}

Loss cosine_similarity(const CosineSimilarityOptions& options) {
  return elementwise("cosine_similarity", options, [axis = options.axis](const at::Tensor& y_true, const at::Tensor& y_pred) {
    axis_of("cosine_similarity", axis, y_pred);
    return -(normalized(y_true, axis) * normalized(y_pred, axis)).sum(axis);
  });
}

Loss hinge(const LossOptions& options) {
  return elementwise("hinge", options, [](const at::Tensor& y_true, const at::Tensor& y_pred) {
    return mean_of_last((1 - as_signs(y_true) * y_pred).clamp_min(0));
  });
}

Loss squared_hinge(const LossOptions& options) {
  return elementwise("squared_hinge", options, [](const at::Tensor& y_true, const at::Tensor& y_pred) {
    return mean_of_last((1 - as_signs(y_true) * y_pred).clamp_min(0).square());
  });
}

Loss categorical_hinge(const LossOptions& options) {
  return elementwise("categorical_hinge", options, [](const at::Tensor& y_true, const at::Tensor& y_pred) {
    axis_of("categorical_hinge", -1, y_pred);
    const auto positive = (y_true * y_pred).sum(-1);
    const auto negative = ((1 - y_true) * y_pred).amax(-1);
    return (negative - positive + 1).clamp_min(0);
  });
}

Loss kl_divergence(const LossOptions& options) {
  return elementwise("kl_divergence", options, [](const at::Tensor& y_true, const at::Tensor& y_pred) {
    axis_of("kl_divergence", -1, y_pred);
    const auto wanted = y_true.clamp(kEpsilon, 1);
    return (wanted * (wanted / y_pred.clamp(kEpsilon, 1)).log()).sum(-1);
  });
}

Loss poisson(const LossOptions& options) {
  return elementwise("poisson", options, [](const at::Tensor& y_true, const at::Tensor& y_pred) {
    return mean_of_last(y_pred - y_true * (y_pred + kEpsilon).log());
  });
}

Loss dice(const DiceOptions& options) {
  return elementwise("dice", options, [axis = options.axis](const at::Tensor& y_true, const at::Tensor& y_pred) {
    const auto sum = [&](const at::Tensor& x) { return axis ? x.sum(axis_of("dice", *axis, x)) : x.sum(); };
    return 1 - 2 * sum(y_true * y_pred) / (sum(y_true) + sum(y_pred) + kEpsilon);
  });
}

Loss tversky(const TverskyOptions& options) {
  return elementwise("tversky", options, [options](const at::Tensor& y_true, const at::Tensor& y_pred) {
    const auto sum = [&](const at::Tensor& x) { return options.axis ? x.sum(axis_of("tversky", *options.axis, x)) : x.sum(); };
    const auto both = sum(y_true * y_pred);
    const auto missed = sum((1 - y_pred) * y_true);
    const auto wrong = sum(y_pred * (1 - y_true));
    return 1 - both / (both + missed * options.alpha + wrong * options.beta + kEpsilon);
  });
}

}  // namespace lockstep::losses

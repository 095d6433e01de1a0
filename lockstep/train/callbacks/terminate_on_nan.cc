#include "lockstep/train/callbacks/terminate_on_nan.h"

#include <ATen/ATen.h>

#include <cmath>

#include "lockstep/base/str.h"
#include "lockstep/train/model/model.h"

namespace lockstep {
namespace {

constexpr std::size_t kNamed = 8;

// "conv1.weight (3 of 288 values)", the first few.
std::string not_finite(const CheckpointPart& weights) {
  std::vector<std::string> named;
  std::size_t count = 0;
  for (const auto& [name, tensor] : weights.tensors) {
    if (!tensor.is_floating_point()) continue;
    const auto bad = tensor.numel() - at::isfinite(tensor).sum().item<std::int64_t>();
    if (bad > 0 && ++count <= kNamed) named.push_back(str(name, " (", bad, " of ", tensor.numel(), " values)"));
  }
  if (count == 0) return "all parameters are finite: the loss itself, or the data, is not";
  return str("parameters that are not finite: ", join(", ", named),
             count > kNamed ? str(" and ", count - kNamed, " more") : "");
}

}  // namespace

void TerminateOnNaN::on_train_batch_end(Training& training) {
  const double loss = training.model().last_loss();
  if (std::isfinite(loss)) return;
  training.fail(
      Error(ErrorCode::kOutOfRange,
            str("TerminateOnNaN: the loss is ", loss, " in step ", training.step(), " of epoch ", training.epoch() + 1, "; ",
                not_finite(training.model().weights()),
                ". A smaller learning rate or clipping (global_clipnorm) may help; look for bad values in the data")));
}

}  // namespace lockstep

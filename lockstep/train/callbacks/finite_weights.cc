#include "lockstep/train/callbacks/finite_weights.h"

#include <ATen/ATen.h>
#include <c10/core/GradMode.h>

#include "lockstep/base/str.h"
#include "lockstep/train/model/model.h"
#include "lockstep/variable/module_replicas.h"

namespace lockstep::internal {
namespace {

constexpr std::size_t kNamed = 8;

// A sum is as fast as the memory, and not finite where a value is not; it may be too large where all are finite.
bool has_finite_sums(const NamedTensors& parameters) {
  std::vector<at::Tensor> sums;
  for (const auto& [name, parameter] : parameters)
    if (parameter.is_floating_point()) sums.push_back(parameter.sum().to(at::kDouble));
  return sums.empty() || at::isfinite(at::stack(sums)).all().item<bool>();
}

}  // namespace

std::string not_finite_parameters(const Model& model) {
  const c10::NoGradGuard no_grad;
  NamedTensors parameters;
  for (const auto& [name, parameter] : model.module()->named_parameters(0))
    if (parameter.requires_grad()) parameters.emplace_back(name, parameter);
  if (has_finite_sums(parameters)) return "";
  std::vector<std::string> named;
  std::size_t count = 0;
  for (const auto& [name, parameter] : parameters) {
    if (!parameter.is_floating_point()) continue;
    const auto bad = parameter.numel() - at::isfinite(parameter).sum().item<std::int64_t>();
    if (bad > 0 && ++count <= kNamed) named.push_back(str(name, " (", bad, " of ", parameter.numel(), " values)"));
  }
  return str(join(", ", named), count > kNamed ? str(" and ", count - kNamed, " more") : "");
}

bool may_be_kept(Training& training, const char* who) {
  if (training.is_failing()) return false;
  const auto bad = not_finite_parameters(training.model());
  if (bad.empty()) return true;
  training.fail(Error(ErrorCode::kOutOfRange,
                      str(who, ": after step ", training.step(), " of epoch ", training.epoch() + 1,
                          " these parameters are not finite, and are not saved: ", bad,
                          "; what was saved before is kept. A smaller learning rate or clipping (global_clipnorm) may help")));
  return false;
}

}  // namespace lockstep::internal

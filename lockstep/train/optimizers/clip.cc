#include "lockstep/train/optimizers/clip.h"

#include <ATen/ATen.h>

#include <cmath>

namespace lockstep {

double squared_norm(const at::Tensor& gradient) {
  const auto values = gradient.layout() == at::kSparse ? gradient.coalesce().values() : gradient;
  const auto real = values.is_complex() ? at::view_as_real(values.resolve_conj()) : values;
  const double norm = at::linalg_vector_norm(real, 2, at::OptionalIntArrayRef(), false, at::kDouble).item<double>();
  return norm * norm;
}

void clip_norm(at::Tensor& gradient, double most) {
  const double norm = std::sqrt(squared_norm(gradient));
  if (norm > most) gradient.mul_(most / norm);
}

void clip_value(at::Tensor& gradient, double most) {
  if (gradient.layout() == at::kSparse) gradient = gradient.coalesce();
  auto values = gradient.layout() == at::kSparse ? gradient._values() : gradient;
  values.clamp_(-most, most);
}

}  // namespace lockstep

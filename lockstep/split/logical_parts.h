#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <vector>

namespace lockstep {

// A part of a tensor that was annotated with Strategy::experimental_split_to_logical_devices and the like.
struct LogicalPart {
  int logical_device = 0;
  std::vector<std::int64_t> offset = {};  // where it begins in the whole tensor
  at::Tensor value = {};
};

// Where a tensor lies. An ordinary one is one part, on the first logical device.
std::vector<LogicalPart> logical_parts(const at::Tensor& tensor);

// An ordinary tensor of the same value, on the first logical device: for code that reads its memory. Differentiable.
at::Tensor without_annotation(const at::Tensor& tensor);

}  // namespace lockstep

#pragma once

#include <c10/core/Device.h>
#include <c10/core/ScalarType.h>

#include <cstddef>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "lockstep/collective/transport.h"
#include "lockstep/fwd.h"

// How tensors become bytes that travel, and back.

namespace lockstep {

// Tensors of one dtype, by their positions.
struct DtypeGroup {
  c10::ScalarType dtype = c10::ScalarType::Float;
  std::int64_t count = 0;  // of elements
  std::vector<std::size_t> members = {};
};

// In the order in which the dtypes first appear.
std::vector<DtypeGroup> group_by_dtype(std::span<const at::Tensor> tensors);

// The members' elements one after the other, in one dimension, on `device`. Shares the memory of a single one where it can.
at::Tensor flat_pack(std::span<const at::Tensor> tensors, std::span<const std::size_t> members,
                     c10::Device device = c10::Device(c10::DeviceType::CPU));
// The inverse; leaves out a tensor whose memory is `flat`'s.
void unpack_flat(const at::Tensor& flat, std::span<const std::size_t> members, std::span<at::Tensor> tensors);

// Any tensors with their dtypes and shapes.
std::vector<std::byte> to_bytes(std::span<const at::Tensor> tensors);
std::vector<at::Tensor> from_bytes(ConstBytes bytes);

// Only their dtypes and shapes; and tensors like them, uninitialised, on `device`.
std::string shapes_to_text(std::span<const at::Tensor> tensors);
std::vector<at::Tensor> empty_from_text(const std::string& text, c10::Device device = c10::Device(c10::DeviceType::CPU));

// How engines know a dtype in their own sums.
std::optional<SumType> native_type(c10::ScalarType dtype);

}  // namespace lockstep

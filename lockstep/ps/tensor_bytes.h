#pragma once

#include <ATen/core/Tensor.h>

#include <cstddef>
#include <memory>
#include <span>

#include "lockstep/ps/message.h"

namespace lockstep::ps {

// The memory of a contiguous tensor on the CPU.
inline std::span<std::byte> bytes_in(const at::Tensor& tensor) {
  return {static_cast<std::byte*>(tensor.data_ptr()), tensor.nbytes()};
}

// The same to be sent; the piece keeps the tensor.
inline Piece piece_of(const at::Tensor& tensor) { return {bytes_in(tensor), std::make_shared<at::Tensor>(tensor)}; }

}  // namespace lockstep::ps

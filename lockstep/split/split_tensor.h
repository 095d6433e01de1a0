#pragma once

#include <ATen/core/Tensor.h>
#include <vector>

#include "lockstep/split/logical_devices.h"
#include "lockstep/split/tiling.h"

// Note [split tensors]
// 1. A replica may own several logical devices (DeviceAssignment). A tensor lies on its first one, as ever, until it is
//    annotated: assigned to another one, copied to all, or cut into tiles, one a device.
// 2. An annotated tensor is still an at::Tensor, of the same shape and dtype, without memory of its own: behind it is a
//    SplitValue with the parts. LibTorch asks us for every operation that such a tensor takes part in, above autograd
//    (dispatch.cc). So modules and functions of the user's take it as any other, and the parts are ordinary tensors with
//    ordinary gradients, which reach the tensor that was annotated.
// 3. An operation with a rule (rules.h) is done part by part, each on its device; what a part needs of other parts is fetched
//    from them (fetch): the neighbours' rows of a convolution, the other operand of a product. The result is split, too.
//    Where the cuts of operands differ, those with the most tiles count.
// 4. An operation without one is done on the first device, with whole tensors, and the log says so once.
// 5. The value is always that of the tensor that is not split. Sums over what was cut are added up in the order of the tiles.
namespace lockstep::split {

// What is behind an annotated tensor: its tiles, or a copy for each device. Tile k is parts[k], on logical device devices[k].
struct SplitValue {
  Home home = nullptr;
  bool is_replicated = false;    // the tiling has one tile then, and part k is a copy on device k
  bool is_copy_of_view = false;  // one tile on the first device; whoever writes to it means the tensor that it was copied from
  Tiling tiling = {};
  std::vector<at::Tensor> parts = {};
  std::vector<int> devices = {};
};

// Null: an ordinary tensor.
SplitValue* find_value(const at::Tensor& tensor) noexcept;

// The tensor in front of a value. One tile on the first device is that tensor itself.
at::Tensor make_tensor(SplitValue value);

// The front of a copy of a view: may be read, but not written to.
at::Tensor make_copy_of_view(const at::Tensor& copy, const Home& home);

// An ordinary tensor on the first device; an ordinary one is returned as it is.
at::Tensor whole(const at::Tensor& tensor);

// That region as an ordinary tensor on a logical device of `home`. Where it is just what lies there already, that tensor
// itself.
at::Tensor fetch(const at::Tensor& tensor, const Region& region, const LogicalDevices& home, int device);

// A tensor without dimensions in the CPU's memory stays there: operations of all devices take it.
at::Tensor moved(const at::Tensor& tensor, c10::Device device);

// The tiles of an ordinary tensor: copies, each on its device.
std::vector<at::Tensor> cut(const at::Tensor& tensor, const Tiling& tiling, const LogicalDevices& home,
                            const std::vector<int>& devices);

// The annotations, without their checks.
at::Tensor assign_to(const at::Tensor& tensor, const Home& home, int device);
at::Tensor split_to(const at::Tensor& tensor, const Home& home, const std::vector<std::int64_t>& counts);
at::Tensor replicate_to(const at::Tensor& tensor, const Home& home);

}  // namespace lockstep::split

#include <ATen/ATen.h>
#include <ATen/TensorIndexing.h>

#include <algorithm>

#include "lockstep/base/error.h"
#include "lockstep/base/str.h"
#include "lockstep/ps/sharded_variable.h"

// Python's v[...] of ShardedVariable. LibTorch's own indexing has no steps below 0, and would need the whole value.

namespace lockstep {
namespace {

using at::indexing::Slice;
using at::indexing::TensorIndex;

// Newer LibTorch has a type of its own for numbers that may not be known yet.
template <typename T>
std::int64_t number_of(const T& value) {
  if constexpr (std::is_integral_v<T>) return value;
  else return value.guard_int(__FILE__, __LINE__);
}

// start, start + step, ...
struct Range {
  std::int64_t start = 0;
  std::int64_t step = 1;
  std::int64_t count = 0;

  std::int64_t last() const { return start + (count - 1) * step; }
};

// What the slice means for a dimension of this size. LibTorch's Slice has filled in what was left out.
Range range_of(const Slice& slice, std::int64_t size) {
  // A longer step selects no more, and cannot overflow.
  const auto step = std::clamp(number_of(slice.step()), -size - 1, size + 1);
  const std::int64_t lowest = step < 0 ? -1 : 0;
  const auto highest = step < 0 ? size - 1 : size;
  const auto inside = [&](std::int64_t index) { return std::clamp(index < 0 ? index + size : index, lowest, highest); };
  const auto start = inside(number_of(slice.start()));
  const auto stop = inside(number_of(slice.stop()));
  const auto length = step < 0 ? start - stop : stop - start;
  return {start, step, length <= 0 ? 0 : (length - 1) / std::abs(step) + 1};
}

at::Tensor take(const at::Tensor& value, std::int64_t dim, const Range& range) {
  if (range.count == 0) return value.narrow(dim, 0, 0);
  if (range.step > 0) return value.slice(dim, range.start, range.last() + 1, range.step);
  return value.slice(dim, range.last(), range.start + 1, -range.step).flip(dim);
}

// Counted from the front. Throws `code` when it is not there.
std::int64_t position_of(const TensorIndex& index, std::int64_t size, std::int64_t dim, ErrorCode code) {
  const auto given = number_of(index.integer());
  const auto position = given < 0 ? given + size : given;
  if (position < 0 || position >= size)
    throw Error(code, str("index ", given, " of dimension ", dim, " is out of bounds; the dimension has ", size,
                          " items, and indices must be in [", -size, ", ", size, ")"));
  return position;
}

// One index for each dimension, and the new dimensions between them.
std::vector<TensorIndex> expand(at::ArrayRef<TensorIndex> indices, std::size_t dims) {
  std::size_t given = 0;
  std::size_t ellipses = 0;
  for (const auto& index : indices) {
    if (index.is_tensor() || index.is_boolean())
      throw Error(ErrorCode::kInvalidArgument,
                  "a tensor among other indices, or one that is not of bool, is not allowed; use embedding_lookup()");
    if (index.is_integer() || index.is_slice()) ++given;
    if (index.is_ellipsis()) ++ellipses;
  }
  if (given > dims || ellipses > 1)
    throw Error(ErrorCode::kInvalidArgument, str(given, " indices and ", ellipses, " ellipses for ", dims,
                                                 " dimensions; there may be one of each dimension, and one ellipsis"));
  std::vector<TensorIndex> all;
  for (const auto& index : indices) {
    if (index.is_ellipsis()) all.insert(all.end(), dims - given, Slice());
    else all.push_back(index);
  }
  if (ellipses == 0) all.insert(all.end(), dims - given, Slice());
  return all;
}

at::Tensor follow(at::Tensor value, const std::vector<TensorIndex>& indices) {
  std::int64_t dim = 0;
  std::int64_t given = 0;  // the dimension as the caller counts
  for (const auto& index : indices) {
    if (index.is_none()) value = value.unsqueeze(dim++);
    else if (index.is_integer())
      value = value.select(dim, position_of(index, value.size(dim), given++, ErrorCode::kInvalidArgument));
    else {
      value = take(value, dim, range_of(index.slice(), value.size(dim)));
      ++dim;
      ++given;
    }
  }
  return value;
}

}  // namespace

at::Tensor ShardedVariable::index(std::initializer_list<TensorIndex> indices) const {
  return index(at::ArrayRef<TensorIndex>(indices));
}

at::Tensor ShardedVariable::index(at::ArrayRef<TensorIndex> indices) const {
  try {
    if (indices.size() == 1 && indices[0].is_tensor() && indices[0].tensor().scalar_type() == at::kBool)
      return masked(indices[0].tensor());
    auto all = expand(indices, sizes_.size());
    // The index of the rows is followed here, and the others in what was read.
    auto& of_rows = *std::ranges::find_if(all, [](const TensorIndex& index) { return !index.is_none(); });
    Range range;
    if (of_rows.is_slice()) {
      range = range_of(of_rows.slice(), sizes_[0]);
      of_rows = Slice();
    } else {
      const auto code = indices[0].is_integer() ? ErrorCode::kOutOfRange : ErrorCode::kInvalidArgument;
      range = {position_of(of_rows, sizes_[0], 0, code), 1, 1};
      of_rows = 0;
    }
    return follow(read_range(range.start, range.step, range.count), all);
  } catch (const Error& error) {
    throw Error(error.code(), str("an index of ShardedVariable '", name_, "': ", error.message()));
  }
}

at::Tensor ShardedVariable::read_range(std::int64_t start, std::int64_t step, std::int64_t count) const {
  if (step == 1 && count == split_.rows()) return value();
  return gather_rows(at::arange(count, at::kLong) * step + start);
}

at::Tensor ShardedVariable::masked(const at::Tensor& mask) const {
  const auto dims = static_cast<std::size_t>(mask.dim());
  if (dims == 0 || dims > sizes_.size() || mask.sizes() != sizes().slice(0, dims))
    throw Error(ErrorCode::kInvalidArgument, lockstep::str("a mask of shape ", mask.sizes(), " for shape ", sizes(),
                                                           "; it must have the shape of the first dimensions"));
  const auto rows = (mask.dim() == 1 ? mask : mask.flatten(1).any(1)).nonzero().squeeze(1);
  const auto read = gather_rows(rows);
  return read.index({mask.index_select(0, rows).to(read.device())});
}

}  // namespace lockstep

#include "lockstep/data/numpy.h"

#include <ATen/ATen.h>

#include <algorithm>
#include <cstdint>
#include <cstring>
#include <memory>
#include <numeric>
#include <optional>
#include <string_view>
#include <utility>
#include <vector>

#include "lockstep/base/error.h"
#include "lockstep/base/str.h"
#include "lockstep/data/io/mapped_file.h"
#include "lockstep/data/io/npy.h"
#include "lockstep/data/io/npz.h"
#include "lockstep/data/io/whole_file.h"

namespace lockstep::data {
namespace {

using internal::NpyHeader;

// In the order of internal::npy_types().
constexpr at::ScalarType kDtypes[] = {at::kBool, at::kChar,  at::kShort,  at::kInt,          at::kLong,         at::kByte,
                                      at::kHalf, at::kFloat, at::kDouble, at::kComplexFloat, at::kComplexDouble};

at::ScalarType dtype_of(const std::string& type) {
  return kDtypes[std::ranges::find(internal::npy_types(), type) - internal::npy_types().begin()];
}

std::optional<std::string> type_of(at::ScalarType dtype) {
  const auto* const found = std::ranges::find(kDtypes, dtype);
  if (found == std::end(kDtypes)) return std::nullopt;
  return internal::npy_types()[static_cast<std::size_t>(found - kDtypes)];
}

bool is_aligned(const char* values, std::size_t value_bytes) {
  constexpr std::size_t kMost = 8;  // of a complex number, that of its parts
  return reinterpret_cast<std::uintptr_t>(values) % std::min(value_bytes, kMost) == 0;
}

// The values as a tensor, without a copy where possible; `owner` keeps their memory.
at::Tensor to_tensor(const NpyHeader& header, char* values, std::shared_ptr<void> owner) {
  const auto options = at::TensorOptions(dtype_of(header.type));
  if (header.data_bytes == 0) return at::empty(header.sizes, options);
  auto sizes = header.sizes;
  if (header.is_fortran_order) std::ranges::reverse(sizes);
  at::Tensor tensor;
  if (is_aligned(values, header.value_bytes)) {
    tensor = at::from_blob(
        values, sizes, [owner = std::move(owner)](void*) {}, options);
  } else {
    tensor = at::empty(sizes, options);
    std::memcpy(tensor.data_ptr(), values, header.data_bytes);
  }
  if (!header.is_fortran_order) return tensor;
  std::vector<std::int64_t> reversed(sizes.size());
  std::iota(reversed.rbegin(), reversed.rend(), 0);
  return tensor.permute(reversed).contiguous();
}

}  // namespace

at::Tensor read_npy(const std::string& path) {
  const auto where = lockstep::str("the file '", path, "'");
  auto file = std::make_shared<MappedFile>(path);
  const auto header = internal::parse_npy_header(file->bytes(), where);
  internal::check_npy_size(header, file->size() - header.header_bytes, where);
  auto* const values = file->data() + header.header_bytes;
  return to_tensor(header, values, std::move(file));
}

void write_npy(const std::string& path, const at::Tensor& tensor) {
  if (!tensor.defined() || tensor.layout() != at::kStrided)
    throw Error(ErrorCode::kInvalidArgument,
                lockstep::str("write_npy: '", path, "' is to hold a tensor that is ",
                              tensor.defined() ? "not dense" : "not defined", "; give a dense one"));
  const auto type = type_of(tensor.scalar_type());
  if (!type)
    throw Error(ErrorCode::kInvalidArgument,
                lockstep::str("write_npy: '", path, "' is to hold values of type ", tensor.scalar_type(),
                              ", which NumPy does not have; convert the tensor with to(at::kFloat), for example"));
  const auto values = tensor.detach().cpu().resolve_conj().resolve_neg().contiguous();
  const std::string_view bytes(static_cast<const char*>(values.data_ptr()), values.nbytes());
  const auto header = internal::make_npy_header(*type, values.sizes().vec());
  write_whole_file(path, {header, bytes});
}

Element read_npz(const std::string& path) {
  std::vector<Component> components;
  for (auto& array : internal::read_npz_arrays(path)) {
    auto* const values = array.values.get();
    components.push_back({array.name, to_tensor(array.header, values, std::move(array.values))});
  }
  return Element(std::move(components));
}

}  // namespace lockstep::data

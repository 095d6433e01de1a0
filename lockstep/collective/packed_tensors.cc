#include "lockstep/collective/packed_tensors.h"

#include <ATen/ATen.h>

#include <algorithm>
#include <cstring>

#include "lockstep/base/error.h"
#include "lockstep/collective/dense.h"

namespace lockstep {
namespace {

at::Tensor flat_on(const at::Tensor& tensor, c10::Device device) {
  return in_memory(tensor.detach()).to(device).contiguous().view(-1);
}

void append_number(std::vector<std::byte>& bytes, std::int64_t number) {
  const auto* data = reinterpret_cast<const std::byte*>(&number);
  bytes.insert(bytes.end(), data, data + sizeof(number));
}

// Reads what to_bytes wrote.
class Reader {
 public:
  explicit Reader(ConstBytes bytes) : left_(bytes) {}

  std::int64_t number() {
    std::int64_t value = 0;
    std::memcpy(&value, take(sizeof(value)).data(), sizeof(value));
    return value;
  }
  ConstBytes take(std::size_t bytes) {
    if (bytes > left_.size()) throw Error(ErrorCode::kInternal, "a message with tensors is shorter than it says");
    const auto taken = left_.first(bytes);
    left_ = left_.subspan(bytes);
    return taken;
  }

 private:
  ConstBytes left_;
};

}  // namespace

std::vector<DtypeGroup> group_by_dtype(std::span<const at::Tensor> tensors) {
  std::vector<DtypeGroup> groups;
  for (std::size_t k = 0; k < tensors.size(); ++k) {
    auto group = std::ranges::find(groups, tensors[k].scalar_type(), &DtypeGroup::dtype);
    if (group == groups.end()) group = groups.insert(groups.end(), {tensors[k].scalar_type()});
    group->count += tensors[k].numel();
    group->members.push_back(k);
  }
  return groups;
}

at::Tensor flat_pack(std::span<const at::Tensor> tensors, std::span<const std::size_t> members, c10::Device device) {
  if (members.size() == 1) return flat_on(tensors[members[0]], device);
  std::vector<at::Tensor> parts;
  for (const auto member : members) parts.push_back(flat_on(tensors[member], device));
  return at::cat(parts);
}

void unpack_flat(const at::Tensor& flat, std::span<const std::size_t> members, std::span<at::Tensor> tensors) {
  std::int64_t offset = 0;
  for (const auto member : members) {
    auto to = tensors[member].detach();
    const auto count = to.numel();
    const bool is_there =
        to.device() == flat.device() && count > 0 && to.data_ptr() == flat.data_ptr() && count == flat.numel();
    if (!is_there) to.copy_(flat.narrow(0, offset, count).view(to.sizes()));
    offset += count;
  }
}

std::vector<std::byte> to_bytes(std::span<const at::Tensor> tensors) {
  std::vector<std::byte> bytes;
  append_number(bytes, static_cast<std::int64_t>(tensors.size()));
  for (const auto& tensor : tensors) {
    append_number(bytes, static_cast<std::int64_t>(tensor.scalar_type()));
    append_number(bytes, tensor.dim());
    for (const auto size : tensor.sizes()) append_number(bytes, size);
    const auto flat = flat_on(tensor, at::kCPU);
    const auto* data = static_cast<const std::byte*>(flat.data_ptr());
    bytes.insert(bytes.end(), data, data + flat.nbytes());
  }
  return bytes;
}

std::vector<at::Tensor> from_bytes(ConstBytes bytes) {
  Reader reader(bytes);
  std::vector<at::Tensor> tensors;
  for (auto left = reader.number(); left > 0; --left) {
    const auto dtype = static_cast<c10::ScalarType>(reader.number());
    std::vector<std::int64_t> sizes(static_cast<std::size_t>(reader.number()));
    for (auto& size : sizes) size = reader.number();
    auto tensor = at::empty(sizes, at::TensorOptions(dtype));
    const auto data = reader.take(tensor.nbytes());
    if (!data.empty()) std::memcpy(tensor.data_ptr(), data.data(), data.size());
    tensors.push_back(std::move(tensor));
  }
  return tensors;
}

std::string shapes_to_text(std::span<const at::Tensor> tensors) {
  std::string text;
  for (const auto& tensor : tensors) {
    text += std::to_string(static_cast<int>(tensor.scalar_type()));
    for (const auto size : tensor.sizes()) text += "," + std::to_string(size);
    text += ";";
  }
  return text;
}

std::vector<at::Tensor> empty_from_text(const std::string& text, c10::Device device) {
  std::vector<at::Tensor> tensors;
  for (std::size_t at = 0; at < text.size();) {
    std::vector<std::int64_t> numbers;
    for (char end = ','; end == ','; ++at) {
      std::size_t used = 0;
      numbers.push_back(std::stoll(text.substr(at), &used));
      at += used;
      end = text.at(at);
    }
    tensors.push_back(at::empty(at::IntArrayRef(numbers).slice(1),
                                at::TensorOptions(static_cast<c10::ScalarType>(numbers[0])).device(device)));
  }
  return tensors;
}

std::optional<SumType> native_type(c10::ScalarType dtype) {
  switch (dtype) {
    case c10::ScalarType::Float: return SumType::kFloat;
    case c10::ScalarType::Double: return SumType::kDouble;
    case c10::ScalarType::Long: return SumType::kInt64;
    case c10::ScalarType::Int: return SumType::kInt32;
    default: return std::nullopt;
  }
}

}  // namespace lockstep

#include "lockstep/checkpoint/weights.h"

#include <ATen/ATen.h>
#include <c10/core/GradMode.h>

#include <algorithm>
#include <array>
#include <cstring>

#include "lockstep/base/error.h"
#include "lockstep/base/str.h"
#include "lockstep/checkpoint/copy_bytes.h"
#include "lockstep/checkpoint/server_files.h"

namespace lockstep {
namespace {

struct Type {
  at::ScalarType torch;
  const char* name;
};
constexpr std::array<Type, 10> kTypes{{{at::kDouble, "F64"},
                                       {at::kFloat, "F32"},
                                       {at::kHalf, "F16"},
                                       {at::kBFloat16, "BF16"},
                                       {at::kLong, "I64"},
                                       {at::kInt, "I32"},
                                       {at::kShort, "I16"},
                                       {at::kChar, "I8"},
                                       {at::kByte, "U8"},
                                       {at::kBool, "BOOL"}}};

bool are_convertible(at::ScalarType from, at::ScalarType to) {
  return from == to || (at::isFloatingType(from) && at::isFloatingType(to)) ||
         (at::isIntegralType(from, /*includeBool=*/false) && at::isIntegralType(to, /*includeBool=*/false));
}

}  // namespace

const at::Tensor* CheckpointPart::find(const std::string& name) const {
  const auto found = std::ranges::find(tensors, name, &std::pair<std::string, at::Tensor>::first);
  return found == tensors.end() ? nullptr : &found->second;
}

const std::string& CheckpointPart::value(const std::string& name) const {
  if (const auto found = values.find(name); found != values.end()) return found->second;
  throw Error(ErrorCode::kInvalidArgument, lockstep::str("the checkpoint has no value '", name, "' here"));
}

std::vector<std::string> compare_tensors(const NamedTensors& expected, const CheckpointPart& part) {
  std::vector<std::string> problems;
  std::map<std::string, const at::Tensor*> found;
  for (const auto& [name, tensor] : part.tensors) found[name] = &tensor;
  for (const auto& [name, tensor] : expected) {
    const auto theirs = found.find(name);
    if (theirs == found.end()) {
      problems.push_back(lockstep::str(name, ": missing"));
      continue;
    }
    if (theirs->second->sizes() != tensor.sizes())
      problems.push_back(lockstep::str(name, ": has shape ", theirs->second->sizes(), ", and ", tensor.sizes(), " is needed"));
    else if (!are_convertible(theirs->second->scalar_type(), tensor.scalar_type()))
      problems.push_back(
          lockstep::str(name, ": is ", theirs->second->scalar_type(), ", and ", tensor.scalar_type(), " is needed"));
    found.erase(theirs);
  }
  for (const auto& [name, tensor] : part.tensors)
    if (found.contains(name)) problems.push_back(lockstep::str(name, ": unexpected"));
  return problems;
}

void copy_tensors(const NamedTensors& into, const CheckpointPart& part) {
  const c10::NoGradGuard no_grad;
  std::map<std::string, const at::Tensor*> found;
  for (const auto& [name, tensor] : part.tensors) found[name] = &tensor;
  std::vector<ByteCopy> copies;
  for (const auto& [name, tensor] : into) {
    const auto theirs = found.find(name);
    if (theirs == found.end() || theirs->second->sizes() != tensor.sizes()) continue;
    const auto& from = *theirs->second;
    const bool is_plain = tensor.is_cpu() && from.is_cpu() && tensor.is_contiguous() && from.is_contiguous() &&
                          tensor.scalar_type() == from.scalar_type() && !tensor.is_inference();
    if (!is_plain) {
      at::Tensor(tensor).copy_(from);
      continue;
    }
    tensor.unsafeGetTensorImpl()->bump_version();  // as copy_ does, for graphs that hold the old values
    copies.push_back({static_cast<std::byte*>(tensor.data_ptr()), internal::bytes_of(from)});
  }
  copy_bytes(copies);
}

SafetensorsEntry internal::entry_for(const std::string& name, const at::Tensor& tensor) {
  const auto type = std::ranges::find(kTypes, tensor.scalar_type(), &Type::torch);
  if (type == kTypes.end())
    throw Error(
        ErrorCode::kInvalidArgument,
        lockstep::str(
            "tensor '", name, "' is ", tensor.scalar_type(),
            ", which a safetensors file cannot hold; convert it (float64, float32, float16, bfloat16, int64, int32, int16, "
            "int8, uint8 and bool are fine)"));
  return {name, type->name, tensor.sizes().vec()};
}

at::Tensor internal::on_host(const at::Tensor& tensor) {
  auto dense = tensor.layout() == at::kStrided ? tensor.detach() : tensor.detach().to_dense();
  dense = dense.to(at::kCPU).contiguous();
  return dense.is_neg() || dense.is_conj() ? dense.clone().resolve_neg().resolve_conj() : dense;
}

std::span<const std::byte> internal::bytes_of(const at::Tensor& host_tensor) {
  return {static_cast<const std::byte*>(host_tensor.data_ptr()), host_tensor.nbytes()};
}

at::Tensor internal::view_of(const OpenedCheckpoint::File& file, const SafetensorsEntry& entry) {
  const auto type = std::ranges::find_if(kTypes, [&](const Type& one) { return one.name == entry.dtype; });
  const auto options = at::TensorOptions().dtype(type->torch);
  if (entry.begin == entry.end) return at::empty(entry.shape, options);
  char* const data = file.bytes->data() + file.header.header_bytes + entry.begin;
  const auto element = safetensors_element_bytes(entry.dtype);
  if (reinterpret_cast<std::uintptr_t>(data) % element != 0) {
    auto copy = at::empty(entry.shape, options);
    std::memcpy(copy.data_ptr(), data, entry.end - entry.begin);
    return copy;
  }
  return at::from_blob(
      data, entry.shape, [keep = file.bytes](void*) {}, options);
}

void internal::sort_by_element(NamedTensors& tensors) {
  std::ranges::stable_sort(tensors, std::greater<>(), [](const auto& named) { return named.second.element_size(); });
}

void save_weights(const std::string& path, const NamedTensors& tensors, const std::map<std::string, std::string>& metadata) {
  auto sorted = tensors;
  internal::sort_by_element(sorted);
  std::vector<SafetensorsEntry> entries;
  for (auto& [name, tensor] : sorted) {
    entries.push_back(internal::entry_for(name, tensor));
    tensor = internal::on_host(tensor);
  }
  const auto header = make_safetensors_header(entries, metadata);
  std::vector<std::span<const std::byte>> pieces{std::as_bytes(std::span(header))};
  for (const auto& [name, tensor] : sorted) pieces.push_back(internal::bytes_of(tensor));
  write_file_safely(real_files(), path, pieces);
}

namespace {

LoadedWeights load_from_checkpoint(const std::string& folder) {
  const auto opened = open_checkpoint(folder);
  const auto& parts = opened.manifest.parts;
  const auto part = std::ranges::find_if(
      parts, [](const Manifest::Part& one) { return !one.weights_file.empty() || !one.server_files.empty(); });
  if (part == parts.end())
    throw Error(ErrorCode::kInvalidArgument, str("the checkpoint '", folder, "' has no model; track one when it is saved"));
  auto names = part->server_files;
  if (names.empty()) names = {part->weights_file};
  std::map<std::string, OpenedCheckpoint::File> files;
  for (const auto& name : names) {
    const auto* const facts = opened.manifest.find_file(name);
    if (facts == nullptr) throw Error(ErrorCode::kDataLoss, str("'", folder, "': the manifest does not know '", name, "'"));
    if (!part->server_files.empty()) check_checkpoint_file(folder, *facts);
    files.insert(*opened.files.find(name));
  }
  return {internal::SavedVariables(files).joined(), {}};
}

}  // namespace

LoadedWeights load_weights(const std::string& path) {
  if (is_folder(path)) return load_from_checkpoint(path);
  OpenedCheckpoint::File file{std::make_shared<data::MappedFile>(path), {}};
  file.header = parse_safetensors(file.bytes->bytes(), lockstep::str("the file '", path, "'"));
  LoadedWeights weights{{}, file.header.metadata};
  for (const auto& entry : file.header.tensors) weights.tensors.emplace_back(entry.name, internal::view_of(file, entry));
  return weights;
}

}  // namespace lockstep

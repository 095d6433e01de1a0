#pragma once

#include <map>
#include <memory>
#include <string>
#include <vector>

#include "lockstep/checkpoint/checkpoint_files.h"
#include "lockstep/checkpoint/trackable.h"
#include "lockstep/fwd.h"
#include "lockstep/variable/mirrored.h"

namespace lockstep {

// Files of tensors in the safetensors format, which Python's package `safetensors` reads and writes. Names are those that
// LibTorch and PyTorch give ("conv1.weight"), so that weights go both ways. Element types: float64, float32, float16, bfloat16,
// int64, int32, int16, int8, uint8 and bool; others are kInvalidArgument.
//
// A file appears whole or not at all, also after a crash. Paths that cannot be written: errors as FileLayer's.

void save_weights(const std::string& path, const NamedTensors& tensors,
                  const std::map<std::string, std::string>& metadata = {});
// Parameters and buffers.
void save_weights(const std::string& path, const torch::nn::Module& module,
                  const std::map<std::string, std::string>& metadata = {});
// The same, with the buffers of all replicas brought together; with several workers all call it, and the first one writes.
void save_weights(const std::string& path, const ModuleReplicas& model,
                  const std::map<std::string, std::string>& metadata = {});
template <typename M>
void save_weights(const std::string& path, const MirroredModule<M>& model,
                  const std::map<std::string, std::string>& metadata = {}) {
  save_weights(path, *model.replicas(), metadata);
}

struct LoadedWeights {
  NamedTensors tensors = {};  // in the memory of the CPU
  std::map<std::string, std::string> metadata = {};
};
// Of a file, or of a checkpoint's folder: its first model then, whether one process or parameter servers wrote it. Throws
// kNotFound, kDataLoss or kInvalidArgument: see parse_safetensors.
LoadedWeights load_weights(const std::string& path);

struct LoadOptions {
  // All names and shapes must fit, else kInvalidArgument with all that do not, and nothing is changed. Without it, what fits is
  // loaded.
  bool strict = true;
};

// Reads a safetensors file, a checkpoint's folder, or an archive that torch::save made of the same module, into all replicas;
// outside run(), and with several workers on all of them. Returns what did not fit, a line each.
std::vector<std::string> load_weights_into(ModuleReplicas& model, const std::string& path, const LoadOptions& options = {});
template <typename M>
std::vector<std::string> load_weights_into(const MirroredModule<M>& model, const std::string& path,
                                           const LoadOptions& options = {}) {
  return load_weights_into(*model.replicas(), path, options);
}
std::vector<std::string> load_weights_into(torch::nn::Module& module, const std::string& path, const LoadOptions& options = {});

namespace internal {

// Throws kInvalidArgument for an element type that the format does not have.
SafetensorsEntry entry_for(const std::string& name, const at::Tensor& tensor);
// Dense, contiguous, in the memory of the CPU: the tensor itself where it is that.
at::Tensor on_host(const at::Tensor& tensor);
std::span<const std::byte> bytes_of(const at::Tensor& host_tensor);
// A view of the mapped bytes, which it keeps alive.
at::Tensor view_of(const OpenedCheckpoint::File& file, const SafetensorsEntry& entry);

// Files have large elements first, so that mapped tensors are aligned.
void sort_by_element(NamedTensors& tensors);

// The part of a checkpoint that is a model.
std::shared_ptr<Trackable> module_part(std::shared_ptr<ModuleReplicas> model);

}  // namespace internal
}  // namespace lockstep

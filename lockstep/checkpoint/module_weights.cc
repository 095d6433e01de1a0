#include <torch/torch.h>

#include <fstream>
#include <set>

#include "lockstep/base/error.h"
#include "lockstep/base/str.h"
#include "lockstep/checkpoint/together.h"
#include "lockstep/checkpoint/weights.h"
#include "lockstep/replica/replica_set.h"

namespace lockstep {
namespace {

// Parameters and buffers, each tensor once.
NamedTensors tensors_of(const torch::nn::Module& module) {
  NamedTensors tensors;
  std::set<const void*> seen;
  const auto add = [&](const auto& named) {
    for (const auto& item : named)
      if (item.value().defined() && seen.insert(item.value().unsafeGetTensorImpl()).second)
        tensors.emplace_back(item.key(), item.value().detach());
  };
  add(module.named_parameters());
  add(module.named_buffers());
  return tensors;
}

// By every name that a tensor has: one that two layers share has two, of which a file may have either, or both.
std::map<std::string, at::Tensor> names_of(const torch::nn::Module& module) {
  std::map<std::string, at::Tensor> names;
  for (const auto& item : module.named_parameters())
    if (item.value().defined()) names.emplace(item.key(), item.value());
  for (const auto& item : module.named_buffers())
    if (item.value().defined()) names.emplace(item.key(), item.value());
  return names;
}

// As compare_tensors, with shared tensors under any of their names.
std::vector<std::string> misfits(const torch::nn::Module& module, const CheckpointPart& part) {
  const auto names = names_of(module);
  std::set<const void*> given;
  NamedTensors expected;
  for (const auto& [name, tensor] : part.tensors)
    if (const auto found = names.find(name); found != names.end()) {
      given.insert(found->second.unsafeGetTensorImpl());
      expected.emplace_back(name, found->second);
    }
  for (const auto& [name, tensor] : tensors_of(module))
    if (!given.contains(names.at(name).unsafeGetTensorImpl())) expected.emplace_back(name, tensor);
  return compare_tensors(expected, part);
}

// What fits.
void copy_into(torch::nn::Module& module, const CheckpointPart& part) {
  const auto names = names_of(module);
  copy_tensors({names.begin(), names.end()}, part);
}

class ModulePart : public Trackable {
 public:
  explicit ModulePart(std::shared_ptr<ModuleReplicas> model) : model_(std::move(model)) {}

  CheckpointPart save() override { return {tensors_of(*model_->here()), {}}; }
  std::vector<std::string> problems(const CheckpointPart& part) const override { return misfits(*model_->at(0), part); }
  void restore(const CheckpointPart& part) override {
    model_->synchronize_buffers();  // what was not looked at yet must not come later
    for (std::size_t replica = 0; replica < model_->size(); ++replica) copy_into(*model_->at(replica), part);
  }
  bool is_weights() const override { return true; }

 private:
  const std::shared_ptr<ModuleReplicas> model_;
};

bool is_archive(const std::string& path) {
  std::ifstream file(path, std::ios::binary);
  std::string begin(4, '\0');
  return file.read(begin.data(), 4) && begin == "PK\x03\x04";
}

// What torch::save made of a module like this one; names that it does not have come too, without their values.
void read_archive(torch::serialize::InputArchive& archive, const torch::nn::Module& like, const std::string& prefix,
                  CheckpointPart& part) {
  auto left = archive.keys();
  const auto take = [&](const std::string& key, bool is_buffer) {
    at::Tensor tensor;
    if (std::erase(left, key) != 0 && archive.try_read(key, tensor, is_buffer)) part.tensors.emplace_back(prefix + key, tensor);
  };
  for (const auto& item : like.named_parameters(/*recurse=*/false)) take(item.key(), false);
  for (const auto& item : like.named_buffers(/*recurse=*/false)) take(item.key(), true);
  for (const auto& child : like.named_children()) {
    torch::serialize::InputArchive inner;
    if (std::erase(left, child.key()) != 0 && archive.try_read(child.key(), inner))
      read_archive(inner, *child.value(), prefix + child.key() + ".", part);
  }
  for (const auto& key : left)
    if (key != "training") part.tensors.emplace_back(prefix + key, at::empty({0}));
}

CheckpointPart archive_as_part(const torch::nn::Module& like, const std::string& path) {
  try {
    torch::serialize::InputArchive archive;
    archive.load_from(path);
    CheckpointPart part;
    read_archive(archive, like, "", part);
    return part;
  } catch (const c10::Error& error) {
    throw Error(ErrorCode::kDataLoss, str("the archive '", path, "' cannot be read: ", error.what_without_backtrace()));
  }
}

CheckpointPart read_part(const torch::nn::Module& like, const std::string& path) {
  return is_archive(path) ? archive_as_part(like, path) : CheckpointPart{load_weights(path).tensors, {}};
}

void require_fit(const std::vector<std::string>& problems, const std::string& name, const std::string& path) {
  if (!problems.empty())
    throw Error(ErrorCode::kInvalidArgument,
                str("the weights in '", path, "' are not those of ", name, ": ", join("; ", problems),
                    "; nothing was changed. LoadOptions::strict = false loads what fits"));
}

}  // namespace

std::shared_ptr<Trackable> internal::module_part(std::shared_ptr<ModuleReplicas> model) {
  return std::make_shared<ModulePart>(std::move(model));
}

void save_weights(const std::string& path, const torch::nn::Module& module,
                  const std::map<std::string, std::string>& metadata) {
  save_weights(path, tensors_of(module), metadata);
}

void save_weights(const std::string& path, const ModuleReplicas& model, const std::map<std::string, std::string>& metadata) {
  auto* const workers = model.replicas() == nullptr ? nullptr : model.replicas()->workers();
  internal::together(workers, "save_weights", [&] {
    const auto tensors = tensors_of(*model.here());
    if (internal::is_first(workers)) save_weights(path, tensors, metadata);
    return std::string();
  });
}

std::vector<std::string> load_weights_into(ModuleReplicas& model, const std::string& path, const LoadOptions& options) {
  auto* const workers = model.replicas() == nullptr ? nullptr : model.replicas()->workers();
  CheckpointPart part;
  std::vector<std::string> problems;
  internal::together(workers, "load_weights_into", [&] {
    part = read_part(*model.at(0), path);
    problems = misfits(*model.at(0), part);
    if (options.strict) require_fit(problems, model.name(), path);
    return std::string();
  });
  ModulePart(std::shared_ptr<ModuleReplicas>(std::shared_ptr<void>(), &model)).restore(part);
  return problems;
}

std::vector<std::string> load_weights_into(torch::nn::Module& module, const std::string& path, const LoadOptions& options) {
  const auto part = read_part(module, path);
  auto problems = misfits(module, part);
  if (options.strict) require_fit(problems, module.name(), path);
  copy_into(module, part);
  return problems;
}

}  // namespace lockstep

#include "lockstep/checkpoint/checkpoint.h"

#include <ATen/ATen.h>

#include <algorithm>

#include "lockstep/base/error.h"
#include "lockstep/base/log.h"
#include "lockstep/base/str.h"
#include "lockstep/base/trace.h"
#include "lockstep/checkpoint/checkpoint_state.h"
#include "lockstep/checkpoint/file_part.h"
#include "lockstep/checkpoint/server_files.h"
#include "lockstep/checkpoint/weights.h"
#include "lockstep/cluster/coordination.h"
#include "lockstep/replica/mode.h"
#include "lockstep/replica/replica_context.h"
#include "lockstep/replica/replica_set.h"
#include "lockstep/strategy/strategy.h"

namespace lockstep {
namespace {

constexpr const char* kWeightsFile = "weights.safetensors";
constexpr std::size_t kLongestText = 256;  // a value that is longer, or not a text, is kept as bytes beside the tensors

void require_outside_run(const char* what) {
  const auto mode = internal::current_mode();
  if (mode.context != nullptr && mode.replicas != &internal::default_replicas())
    throw Error(ErrorCode::kFailedPrecondition, str(what, " inside run(); save and restore between run() calls"));
}

// Adds one file's tensors to a plan.
void add_file(internal::SavePlan& plan, const std::string& name, NamedTensors tensors) {
  internal::sort_by_element(tensors);
  std::vector<SafetensorsEntry> entries;
  for (const auto& [tensor_name, tensor] : tensors) entries.push_back(internal::entry_for(tensor_name, tensor));
  auto& file = plan.image.files.emplace_back();
  file.name = name;
  file.header = make_safetensors_header(entries, {{"format", "pt"}});
  file.pieces.reserve(tensors.size());
  for (const auto& [tensor_name, tensor] : tensors) {
    const auto host = internal::on_host(tensor);
    file.pieces.push_back(internal::bytes_of(host));
    plan.tensors.push_back(host);
    if (tensor.has_storage() && host.data_ptr() == tensor.data_ptr() && host.nbytes() > 0)
      plan.live.push_back(&file.pieces.back());
  }
}

at::Tensor as_tensor(internal::SavePlan& plan, std::string text) {
  const auto& kept = plan.texts.emplace_back(std::make_shared<std::string>(std::move(text)));
  return at::from_blob(kept->data(), {static_cast<std::int64_t>(kept->size())}, at::kByte);
}

CheckpointPart part_of(const OpenedCheckpoint& opened, const Manifest::Part& described) {
  CheckpointPart part{{}, described.texts};
  const auto prefix = described.name + "/";
  const auto take = [&](const std::string& file_name,
                        const std::function<void(const OpenedCheckpoint::File&, const SafetensorsEntry&)>& use) {
    const auto found = opened.files.find(file_name);
    if (found == opened.files.end()) return;
    for (const auto& entry : found->second.header.tensors) use(found->second, entry);
  };
  if (!described.server_files.empty()) {
    std::map<std::string, OpenedCheckpoint::File> files;
    for (const auto& name : described.server_files)
      if (const auto found = opened.files.find(name); found != opened.files.end()) files.insert(*found);
    part.tensors = internal::SavedVariables(files).joined();
  }
  if (!described.weights_file.empty())
    take(described.weights_file,
         [&](const auto& file, const auto& entry) { part.tensors.emplace_back(entry.name, internal::view_of(file, entry)); });
  take(Manifest::kStateFile, [&](const OpenedCheckpoint::File& file, const SafetensorsEntry& entry) {
    if (!entry.name.starts_with(prefix)) return;
    const auto name = entry.name.substr(prefix.size());
    if (std::ranges::find(described.blobs, name) == described.blobs.end())
      part.tensors.emplace_back(name, internal::view_of(file, entry));
    else
      part.values[name] =
          std::string(file.bytes->bytes().substr(file.header.header_bytes + entry.begin, entry.end - entry.begin));
  });
  return part;
}

}  // namespace

WorkerGroup* Checkpoint::State::workers() const { return replicas == nullptr ? nullptr : replicas->workers(); }

void Checkpoint::State::add(const std::string& name, std::shared_ptr<Trackable> part, std::shared_ptr<ReplicaSet> owner) {
  if (name.empty() || name.find('/') != std::string::npos || !is_utf8(name))
    throw Error(ErrorCode::kInvalidArgument,
                str("'", name, "' cannot be the name of a checkpoint's part; use a word without '/'"));
  if (std::ranges::find(tracked, name, &Tracked::name) != tracked.end())
    throw Error(ErrorCode::kInvalidArgument, str("a checkpoint has two parts named '", name, "'; names are unique"));
  if (part == nullptr) throw Error(ErrorCode::kInvalidArgument, str("the part '", name, "' of a checkpoint is null"));
  if (replicas == nullptr) replicas = std::move(owner);
  tracked.push_back({name, std::move(part)});
}

internal::Parts Checkpoint::State::collect(const char* what) const {
  require_outside_run("saving a checkpoint");
  const trace::Span span("collect checkpoint", trace::Category::kCheckpoint);
  internal::Parts parts;
  internal::together(workers(), what, [&] {
    for (const auto& one : tracked) parts.emplace_back(one.name, one.part->save());
    return std::string();
  });
  return parts;
}

internal::SavePlan Checkpoint::State::plan(internal::Parts parts, const CheckpointInfo& info) const {
  internal::SavePlan plan;
  plan.image.files.reserve(parts.size() + 1);  // `live` points into it
  auto& manifest = plan.image.manifest;
  manifest.info = info;
  manifest.replicas = replicas == nullptr              ? std::vector{1}
                      : replicas->workers() == nullptr ? std::vector{replicas->size()}
                                                       : replicas->workers()->layout().replicas;
  manifest.created = utc_time();
  manifest.writer = build_name();
  NamedTensors state;
  for (std::size_t i = 0; i < parts.size(); ++i) {
    auto& [name, part] = parts[i];
    Manifest::Part described{.name = name};
    for (auto& [key, value] : part.values) {
      if (value.size() <= kLongestText && is_utf8(value)) {
        described.texts[key] = value;
        continue;
      }
      described.blobs.push_back(key);
      state.emplace_back(str(name, "/", key), as_tensor(plan, std::move(value)));
    }
    if (tracked[i].part->is_weights()) {
      described.weights_file = plan.image.files.empty() ? kWeightsFile : str("weights-", name, ".safetensors");
      add_file(plan, described.weights_file, std::move(part.tensors));
    } else {
      for (auto& [key, tensor] : part.tensors) state.emplace_back(str(name, "/", key), std::move(tensor));
    }
    manifest.parts.push_back(std::move(described));
  }
  if (has_file_parts())
    plan.image.write_others = [all = tracked](const std::string& folder, Manifest& written) {
      for (const auto& one : all)
        if (auto* const part = dynamic_cast<FilePart*>(one.part.get())) part->write(folder, one.name, written);
    };
  add_file(plan, Manifest::kStateFile, std::move(state));
  return plan;
}

bool Checkpoint::State::has_file_parts() const {
  return std::ranges::any_of(tracked, [](const Tracked& one) { return dynamic_cast<FilePart*>(one.part.get()) != nullptr; });
}

void Checkpoint::State::check_server_files(const OpenedCheckpoint& opened) const {
  for (const auto& one : tracked) {
    if (auto* const part = dynamic_cast<FilePart*>(one.part.get())) {
      part->check(opened, one.name);
    } else if (const auto* const described = opened.manifest.find_part(one.name)) {
      for (const auto& name : described->server_files)
        if (const auto* const file = opened.manifest.find_file(name)) check_checkpoint_file(opened.path, *file);
    }
  }
}

std::size_t Checkpoint::State::live_bytes(const internal::Parts& parts) {
  std::size_t bytes = 0;
  for (const auto& [name, part] : parts)
    for (const auto& [key, tensor] : part.tensors)
      if (tensor.layout() == at::kStrided && tensor.is_cpu() && tensor.is_contiguous()) bytes += tensor.nbytes();
  return bytes;
}

RestoredCheckpoint Checkpoint::State::restore(const OpenedCheckpoint& opened, const RestoreOptions& options) const {
  require_outside_run("restoring a checkpoint");
  const trace::Span span("restore checkpoint", trace::Category::kCheckpoint, {"checkpoint", opened.manifest.number});
  std::vector<std::pair<const Tracked*, CheckpointPart>> parts;
  internal::together(workers(), "restoring a checkpoint", [&] {
    std::vector<std::string> problems;
    for (const auto& one : tracked) {
      const auto* const described = opened.manifest.find_part(one.name);
      if (described == nullptr) {
        if (options.strict) problems.push_back(str(one.name, ": the checkpoint has no part of this name"));
        else log_warning(str("the checkpoint '", opened.path, "' has no part '", one.name, "', which stays as it is"));
        continue;
      }
      auto* const files = dynamic_cast<FilePart*>(one.part.get());
      auto part = files != nullptr ? CheckpointPart() : part_of(opened, *described);
      for (const auto& problem : files != nullptr ? files->problems_of(opened, one.name) : one.part->problems(part))
        problems.push_back(str(one.name, "/", problem));
      parts.emplace_back(&one, std::move(part));
    }
    if (!problems.empty())
      throw Error(ErrorCode::kInvalidArgument, str("the checkpoint '", opened.path, "' does not fit what is tracked: ",
                                                   join("; ", problems), "; nothing was changed"));
    return std::string();
  });
  internal::together(workers(), "restoring a checkpoint's parts", [&] {
    for (const auto& [one, part] : parts) {
      if (auto* const files = dynamic_cast<FilePart*>(one->part.get())) files->restore_from(opened, one->name);
      else one->part->restore(part);
    }
    return std::string();
  });
  return {opened.path, opened.manifest.number, opened.manifest.info};
}

Checkpoint::Checkpoint() : state_(std::make_shared<State>()) {
  state_->replicas = internal::strategy_replicas(internal::current_mode());
}

// The default strategy's replicas belong to nobody: null, one process.
Checkpoint::Checkpoint(const Strategy& strategy) : Checkpoint(strategy.replicas().weak_from_this().lock()) {}

Checkpoint::Checkpoint(std::shared_ptr<ReplicaSet> replicas) : state_(std::make_shared<State>()) {
  state_->replicas = std::move(replicas);
}

Checkpoint& Checkpoint::track(const std::string& name, std::shared_ptr<Trackable> part) {
  state_->add(name, std::move(part));
  return *this;
}

Checkpoint& Checkpoint::track(const std::string& name, const Variable& variable) {
  auto* const owner = variable.replicas();
  state_->add(name, internal::variable_part(variable), owner == nullptr ? nullptr : owner->shared_from_this());
  return *this;
}

Checkpoint& Checkpoint::track(const std::string& name, const ShardedVariable& variable) {
  auto* const owner = variable.variables()[0].replicas();
  state_->add(name, internal::variable_part(variable), owner == nullptr ? nullptr : owner->shared_from_this());
  return *this;
}

Checkpoint& Checkpoint::track(const std::string& name, std::shared_ptr<ModuleReplicas> model) {
  require(model != nullptr, "track(): the model is null");
  auto owner = model->replicas() == nullptr ? nullptr : model->replicas()->shared_from_this();
  state_->add(name, internal::module_part(std::move(model)), std::move(owner));
  return *this;
}

Checkpoint& Checkpoint::track(const std::string& name, DistributedIterator& iterator) {
  state_->add(name, internal::iterator_part(*state_, iterator));
  return *this;
}

Checkpoint& Checkpoint::track(const std::string& name, data::Iterator& iterator) {
  state_->add(name, internal::iterator_part(*state_, iterator));
  return *this;
}

Checkpoint& Checkpoint::track(const std::string& name, std::int64_t* number) {
  state_->add(name, internal::number_part(number));
  return *this;
}

Checkpoint& Checkpoint::track(const std::string& name, double* number) {
  state_->add(name, internal::number_part(number));
  return *this;
}

Checkpoint& Checkpoint::track_generators(const std::string& name) {
  state_->add(name, internal::generators_part(*state_));
  return *this;
}

std::shared_ptr<ReplicaSet> Checkpoint::replicas() const { return state_->replicas; }

void Checkpoint::write(const std::string& folder, const CheckpointInfo& info) {
  auto parts = state_->collect("Checkpoint::write");
  internal::together(state_->workers(), "Checkpoint::write to the disk", [&] {
    if (!state_->is_first()) return std::string();
    auto plan = state_->plan(std::move(parts), info);
    real_files().make_folder(folder_of(folder));
    write_checkpoint(real_files(), folder, plan.image);
    return std::string();
  });
}

RestoredCheckpoint Checkpoint::read(const std::string& folder, const RestoreOptions& options) {
  OpenedCheckpoint opened;
  internal::together(state_->workers(), "Checkpoint::read", [&] {
    opened = open_checkpoint(folder);
    state_->check_server_files(opened);
    return std::string();
  });
  return state_->restore(opened, options);
}

}  // namespace lockstep

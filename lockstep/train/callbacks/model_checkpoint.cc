#include "lockstep/train/callbacks/model_checkpoint.h"

#include <algorithm>
#include <array>
#include <string_view>

#include "lockstep/base/str.h"
#include "lockstep/checkpoint/checkpoint_manager.h"
#include "lockstep/checkpoint/directory_lock.h"
#include "lockstep/checkpoint/file_layer.h"
#include "lockstep/train/callbacks/file_name.h"
#include "lockstep/train/callbacks/finite_weights.h"
#include "lockstep/train/callbacks/training_checkpoint.h"
#include "lockstep/train/callbacks/values.h"
#include "lockstep/train/model/model_state.h"

namespace lockstep {
namespace {

// Files that other programs write: nobody means a folder by them.
constexpr std::array<std::string_view, 10> kOtherFormats = {".pt",    ".pth",  ".bin", ".h5",  ".hdf5",
                                                            ".keras", ".onnx", ".npz", ".npy", ".safetensor"};

void require_folder(const std::string& path) {
  const auto format = std::ranges::find_if(kOtherFormats, [&](std::string_view end) { return path.ends_with(end); });
  if (format != kOtherFormats.end())
    throw Error(
        ErrorCode::kInvalidArgument,
        str("ModelCheckpoint: the path '", path, "' ends with ", *format,
            ", and weights are written as .safetensors, which Python's safetensors opens; a path without such an ending is "
            "a folder of whole checkpoints"));
  if (path.find('{') != std::string::npos)
    throw Error(
        ErrorCode::kInvalidArgument,
        str("ModelCheckpoint: the path '", path,
            "' names values, which only files of weights may (w-{epoch}.safetensors); a folder keeps its checkpoints under "
            "numbers, and their epochs and metrics in their manifests"));
}

}  // namespace

ModelCheckpoint::ModelCheckpoint(std::string path, const ModelCheckpointOptions& options)
    : path_(std::move(path)),
      options_(options),
      monitor_(options.monitor, options.mode),
      best_(options.initial_value_threshold.value_or(monitor_.worst())) {
  require(!path_.empty(), "ModelCheckpoint: the path is empty");
  if (is_file()) internal::require_formats(path_);
  else require_folder(path_);
  if (options.save_freq < 0)
    throw Error(ErrorCode::kInvalidArgument, str("ModelCheckpoint: save_freq is ", options.save_freq,
                                                 "; it counts steps, from 1 on, and 0 is the end of every epoch"));
}

void ModelCheckpoint::on_train_begin(Training& training) {
  monitor_.ask(training);
  if (!std::exchange(is_restored_, false)) best_ = options_.initial_value_threshold.value_or(monitor_.worst());
  unsaved_ = 0;
  if (is_file()) {
    // A folder whose name depends on values is known only when they are.
    if (training.is_chief() && folder_of(path_).find('{') == std::string::npos)
      lock_ = std::make_shared<FileLock>(path_, FileLock::Folder::kIsMade);
    return;
  }
  CheckpointManagerOptions options{.max_to_keep = options_.max_to_keep};
  if (options_.save_freq == 0) options.keep_best = options_.monitor;
  options.better = monitor_.is_better(1, 0) ? Better::kHigher : Better::kLower;
  manager_ = std::make_shared<CheckpointManager>(training_checkpoint(training), path_, options);
  manager_->claim();
}

std::int64_t ModelCheckpoint::steps_until_pause() const {
  return options_.save_freq == 0 ? 0 : std::max<std::int64_t>(1, options_.save_freq - unsaved_);
}

void ModelCheckpoint::on_train_batch_end(Training& training) {
  ++unsaved_;
  if (options_.save_freq == 0 || unsaved_ < options_.save_freq || !training.is_between_updates()) return;
  unsaved_ = 0;
  // The value decides whether all workers save: it must be the same on all.
  write(training, options_.save_best_only ? training.all_logs() : training.logs());
}

void ModelCheckpoint::on_epoch_end(Training& training, Logs& logs) {
  if (options_.save_freq == 0) write(training, logs);
}

void ModelCheckpoint::write(Training& training, const Logs& logs) {
  std::optional<double> value;
  if (options_.save_best_only) {
    value = monitor_.read(logs, "ModelCheckpoint");
    if (!value || !monitor_.is_better(*value, best_)) return;
  }
  if (!internal::may_be_kept(training, "ModelCheckpoint")) return;
  if (value) best_ = *value;
  if (manager_ != nullptr) {
    manager_->save(training_info(training, logs));
    return;
  }
  auto values = logs;
  values.set("epoch", training.epoch() + 1);
  values.set("batch", static_cast<double>(training.step()));
  values.set("step", static_cast<double>(training.iterations()));
  internal::write_weights(training.model(), internal::file_name(path_, values),
                          {{"format", "pt"}, {"step", std::to_string(training.iterations())}});
}

void ModelCheckpoint::on_train_end(Training&) {
  if (manager_ != nullptr) manager_->wait();
  manager_.reset();
  lock_.reset();
}

void ModelCheckpoint::on_train_failed(Training&) {
  manager_.reset();
  lock_.reset();
}

CheckpointPart ModelCheckpoint::save() const {
  CheckpointPart part;
  internal::put(part, "best", best_);
  return part;
}

void ModelCheckpoint::restore(const CheckpointPart& part) {
  best_ = internal::get(part, "best");
  is_restored_ = true;
}

}  // namespace lockstep

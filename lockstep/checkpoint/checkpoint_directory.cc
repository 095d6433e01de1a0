#include "lockstep/checkpoint/checkpoint_directory.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <string_view>

#include "lockstep/base/error.h"
#include "lockstep/base/log.h"
#include "lockstep/base/number.h"
#include "lockstep/base/str.h"

namespace lockstep {
namespace {

constexpr std::string_view kPrefix = "ckpt-";
constexpr std::string_view kComing = ".part";          // see write_checkpoint
constexpr std::string_view kGoing = ".removing";       // of one that is being removed
constexpr std::int64_t kMost = std::int64_t{1} << 53;  // a folder whose number is larger is not ours

std::optional<std::int64_t> number_of(std::string_view name) {
  if (!name.starts_with(kPrefix)) return std::nullopt;
  const auto number = whole_number(name.substr(kPrefix.size()));
  return number && *number >= 0 && *number < kMost && str(kPrefix, *number) == name ? number : std::nullopt;
}

// What a cut-off attempt to write or to remove one has left.
bool is_leftover(std::string_view name) {
  return std::ranges::any_of(std::array{kComing, kGoing}, [&](std::string_view end) {
    return name.ends_with(end) && number_of(name.substr(0, name.size() - end.size())).has_value();
  });
}

}  // namespace

CheckpointDirectory::CheckpointDirectory(std::string path, Retention retention, FileLayer& files)
    : path_(std::move(path)), retention_(std::move(retention)), files_(files) {
  require(!path_.empty(), "the directory for checkpoints is ''; name one");
  if (retention_.max_to_keep < 0)
    throw Error(ErrorCode::kInvalidArgument, str("max_to_keep is ", retention_.max_to_keep, "; keep at least 1, or 0 for all"));
}

std::string CheckpointDirectory::path_of(std::int64_t number) const { return str(path_, "/", kPrefix, number); }

std::vector<std::int64_t> CheckpointDirectory::numbers() const {
  std::vector<std::int64_t> numbers;
  try {
    for (const auto& name : files_.list(path_))
      if (const auto number = number_of(name)) numbers.push_back(*number);
  } catch (const Error& error) {
    if (error.code() != ErrorCode::kNotFound) throw;
  }
  std::ranges::sort(numbers);
  return numbers;
}

std::optional<double> CheckpointDirectory::metric_of(const Manifest& manifest) const {
  const auto found = manifest.info.metrics.find(retention_.best_metric);
  if (found == manifest.info.metrics.end() || std::isnan(found->second)) return std::nullopt;
  return found->second;
}

std::optional<std::int64_t> CheckpointDirectory::best() const {
  if (retention_.best_metric.empty()) return std::nullopt;
  std::optional<std::int64_t> best;
  for (const auto number : numbers()) {
    if (damaged_.contains(number)) continue;
    if (!metrics_.contains(number)) {
      try {
        metrics_[number] = metric_of(read_manifest(path_of(number)));
      } catch (const Error&) {  // whoever restores it says so
        metrics_[number] = std::nullopt;
      }
    }
    const auto& value = metrics_[number];
    if (!value) continue;
    const bool is_better =
        !best || (retention_.better == Better::kLower ? *value < *metrics_[*best] : *value > *metrics_[*best]);
    if (is_better) best = number;
  }
  return best;
}

void CheckpointDirectory::prepare() {
  if (lock_ != nullptr) return;
  if (!is_folder(path_)) {
    files_.make_folder(path_);
    files_.sync_folder(folder_of(path_));
  }
  lock_ = std::make_unique<DirectoryLock>(path_);
  remove_leftovers();
}

void CheckpointDirectory::remove_leftovers() {
  for (const auto& name : files_.list(path_))
    if (is_leftover(name)) remove_tree(files_, str(path_, "/", name));
}

std::int64_t CheckpointDirectory::next_number() const {
  const auto there = numbers();
  return std::max(last_number_, there.empty() ? 0 : there.back()) + 1;
}

void CheckpointDirectory::write(CheckpointImage& image) {
  const auto number = image.manifest.number;
  write_checkpoint(files_, path_of(number), image);
  last_number_ = std::max(last_number_, number);
  metrics_[number] = metric_of(image.manifest);
  remove_old();
}

// A name that says so first: a folder that is half removed is no checkpoint.
void CheckpointDirectory::remove_one(std::int64_t number) noexcept {
  try {
    const auto old = str(path_of(number), kGoing);
    files_.rename(path_of(number), old);
    remove_tree(files_, old);
    metrics_.erase(number);
    damaged_.erase(number);
  } catch (const std::exception& error) {  // the new checkpoint is there: that is what was asked for
    log_warning(str("an old checkpoint was not removed: ", error.what()));
  }
}

void CheckpointDirectory::remove_old() noexcept {
  try {
    const auto best_one = best();
    std::int64_t kept = 0;
    const auto all = numbers();
    for (auto number = all.rbegin(); number != all.rend(); ++number) {
      if (damaged_.contains(*number)) remove_one(*number);
      else if (retention_.max_to_keep != 0 && ++kept > retention_.max_to_keep && best_one != *number) remove_one(*number);
    }
  } catch (const std::exception& error) {
    log_warning(str("old checkpoints were not removed: ", error.what()));
  }
}

std::optional<OpenedCheckpoint> CheckpointDirectory::open_newest(std::vector<std::string>& damage,
                                                                 const std::function<void(const OpenedCheckpoint&)>& check) {
  const auto all = numbers();
  for (auto number = all.rbegin(); number != all.rend(); ++number) {
    try {
      auto opened = open_checkpoint(path_of(*number));
      if (check != nullptr) check(opened);
      return opened;
    } catch (const Error& error) {
      // What this library cannot read is not damaged.
      if (error.code() != ErrorCode::kDataLoss && error.code() != ErrorCode::kNotFound) throw;
      damage.push_back(error.message());
      damaged_.insert(*number);
    }
  }
  return std::nullopt;
}

void CheckpointDirectory::remove_all() {
  prepare();
  for (const auto number : numbers()) remove_one(number);
  remove_leftovers();
  const auto left = files_.list(path_);
  if (left != std::vector<std::string>{DirectoryLock::kFileName}) return;
  try {
    files_.remove(str(path_, "/", DirectoryLock::kFileName));
    lock_ = nullptr;
    files_.remove(path_);
  } catch (const Error& error) {  // a mount point, a folder above that may not be written to, another job that begins
    log_warning(str("the directory of checkpoints is empty and was not removed: ", error.what()));
  }
}

}  // namespace lockstep

#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "lockstep/checkpoint/checkpoint_files.h"
#include "lockstep/checkpoint/directory_lock.h"

namespace lockstep {

enum class Better { kLower, kHigher };

// Which checkpoints stay.
struct Retention {
  std::int64_t max_to_keep = 5;  // the newest; 0: all
  std::string best_metric = "";  // beside them, the one that is best in this metric; "": none
  Better better = Better::kLower;
};

// The checkpoints "ckpt-1", "ckpt-2", ... in a directory; the highest number is the newest. Without LibTorch. One thread at a
// time.
class CheckpointDirectory {
 public:
  CheckpointDirectory(std::string path, Retention retention, FileLayer& files = real_files());

  const std::string& path() const noexcept { return path_; }
  std::string path_of(std::int64_t number) const;

  // Of those that are there, ascending; they may be damaged. None when there is no directory.
  std::vector<std::int64_t> numbers() const;
  // Among those whose manifest has the metric.
  std::optional<std::int64_t> best() const;

  // Makes the directory, takes the right to write there for the life of this object (DirectoryLock), and removes what attempts
  // that failed have left. Once is enough.
  void prepare();

  // What the next one is called. After prepare().
  std::int64_t next_number() const;

  // Writes the image as `image.manifest.number`, then removes what is no longer to be kept. After prepare().
  void write(CheckpointImage& image);

  // The newest one that is whole, and that `check` (null: nothing more is looked at) does not refuse with kDataLoss. Those that
  // are not are named in `damage`, and no longer count as kept.
  std::optional<OpenedCheckpoint> open_newest(std::vector<std::string>& damage,
                                              const std::function<void(const OpenedCheckpoint&)>& check = nullptr);

  // All checkpoints, and the directory if nothing else is in it. What cannot be removed stays, with a warning.
  void remove_all();

 private:
  void remove_leftovers();
  void remove_one(std::int64_t number) noexcept;
  void remove_old() noexcept;
  std::optional<double> metric_of(const Manifest& manifest) const;

  const std::string path_;
  const Retention retention_;
  FileLayer& files_;
  std::unique_ptr<DirectoryLock> lock_;  // null before prepare()
  std::set<std::int64_t> damaged_;
  mutable std::map<std::int64_t, std::optional<double>> metrics_;  // what manifests say, as far as they were read
  std::int64_t last_number_ = 0;                                   // that was ever used here
};

}  // namespace lockstep

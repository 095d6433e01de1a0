#pragma once

#include <string>
#include <vector>

#include "lockstep/checkpoint/checkpoint_files.h"
#include "lockstep/checkpoint/trackable.h"

namespace lockstep {

// Something whose bytes other processes write into a checkpoint's folder, and read from there: they never come here. `name` is
// the part's in the checkpoint.
class FilePart : public Trackable {
 public:
  // Writes its files into the folder, which is there, and adds them to the manifest, which has the part already. Returns when
  // they are on the disk.
  virtual void write(const std::string& folder, const std::string& name, Manifest& manifest) = 0;
  // Throws kDataLoss when its files are damaged.
  virtual void check(const OpenedCheckpoint& opened, const std::string& name) = 0;
  // As Trackable::problems and Trackable::restore.
  virtual std::vector<std::string> problems_of(const OpenedCheckpoint& opened, const std::string& name) = 0;
  virtual void restore_from(const OpenedCheckpoint& opened, const std::string& name) = 0;

  CheckpointPart save() final { return {}; }
  void restore(const CheckpointPart&) final {}
};

}  // namespace lockstep

#pragma once

#include <memory>
#include <string>
#include <vector>

#include "lockstep/train/callbacks/callback.h"

namespace lockstep {

class FileLock;

struct CSVLoggerOptions {
  char separator = ',';
  bool append = false;  // go on with the file that is there
};

// A line of every epoch's logs in a file: epoch, then the names of the first epoch in the order of the alphabet, with those of
// validation, whose cells are empty in epochs that have none. Each line is on disk when the epoch ends. The chief writes. A
// training that is resumed goes on with the file, and epochs that are trained again replace their lines.
class CSVLogger : public Callback {
 public:
  explicit CSVLogger(std::string file, const CSVLoggerOptions& options = {});

  // Throws kFailedPrecondition when the folder is not there or may not be written to, or another training writes this file;
  // kUnavailable when the disk is full.
  void on_train_begin(Training& training) override;
  void on_epoch_end(Training& training, Logs& logs) override;
  void on_train_end(Training&) override { lock_.reset(); }
  void on_train_failed(Training&) override { lock_.reset(); }

 private:
  void write() const;

  // Const after construction.
  std::string file_;
  CSVLoggerOptions options_;

  // Used only on the thread that called fit().
  std::shared_ptr<FileLock> lock_;  // null: not the chief
  std::vector<std::string> names_;
  std::vector<std::pair<int, std::string>> lines_;  // with their epochs
};

}  // namespace lockstep

#pragma once

#include <string>
#include <vector>

#include "lockstep/train/callbacks/callback.h"

namespace lockstep {

struct CSVLoggerOptions {
  char separator = ',';
  bool append = false;  // go on with the file that is there
};

// A line of every epoch's logs in a file: epoch, then the names of the first epoch in the order of the alphabet. Each line is
// on disk when the epoch ends. The chief writes. A training that is resumed goes on with the file, and epochs that are trained
// again replace their lines.
class CSVLogger : public Callback {
 public:
  explicit CSVLogger(std::string file, const CSVLoggerOptions& options = {});

  // Throws kFailedPrecondition when the folder is not there or may not be written to, kUnavailable when the disk is full.
  void on_train_begin(Training& training) override;
  void on_epoch_end(Training& training, Logs& logs) override;

 private:
  void write() const;

  // Const after construction.
  std::string file_;
  CSVLoggerOptions options_;

  // Used only on the thread that called fit().
  std::vector<std::string> names_;
  std::vector<std::pair<int, std::string>> lines_;  // with their epochs
};

}  // namespace lockstep

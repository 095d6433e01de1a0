#pragma once

#include <cstdint>
#include <memory>
#include <string>

#include "lockstep/train/callbacks/callback.h"

namespace lockstep {

class FileLock;

// Records where the time of some steps goes, on all workers and threads, in one file for ui.perfetto.dev or chrome://tracing:
// see lockstep/observe/gather_trace.h.
class TraceSteps : public Callback {
 public:
  // `count` steps from step `first` of this fit() on, counted from 0: the first ones are slower.
  explicit TraceSteps(std::string file, std::int64_t first = 10, std::int64_t count = 10);

  // Makes the folder. Throws kFailedPrecondition when the file cannot be written there, or another training does.
  void on_train_begin(Training& training) override;
  void on_train_batch_begin(Training& training) override;
  void on_train_batch_end(Training& training) override;
  void on_train_end(Training& training) override;
  void on_train_failed(Training& training) override;

 private:
  void write(Training& training);

  // Const after construction.
  std::string file_;
  std::int64_t first_;
  std::int64_t count_;

  // Used only on the thread that called fit().
  std::shared_ptr<FileLock> lock_;  // null: not the chief
  std::int64_t done_ = 0;           // steps
  bool is_recording_ = false;
};

}  // namespace lockstep

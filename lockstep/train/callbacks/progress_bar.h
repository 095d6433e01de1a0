#pragma once

#include <chrono>
#include <cstdio>
#include <optional>
#include <string>

#include "lockstep/train/callbacks/callback.h"

namespace lockstep {

enum class Verbose {
  kAuto,    // a bar on a terminal, a line an epoch elsewhere
  kSilent,  // nothing
  kBar,     // a line that is rewritten while the epoch goes on
  kLine,    // a line at the end of every epoch, and every few seconds of long ones
};

// Shows how far training is; on the chief only. fit() and evaluate() add one unless told to be silent. On a terminal:
//
//   Epoch 1/3
//   469/469 ━━━━━━━━━━━━━━━━━━━━ 3s 6ms/step - loss: 0.4213 - accuracy: 0.8512 - val_loss: 0.3920
//
// With several workers a table follows: where the time of each one's steps went, and who was waited for (StepStats::summary).
class ProgressBar : public Callback {
 public:
  // `out` is not owned.
  explicit ProgressBar(Verbose verbose = Verbose::kAuto, std::FILE* out = stdout);

  void on_epoch_begin(Training& training) override;
  void on_train_batch_end(Training& training) override;
  void on_epoch_end(Training& training, Logs& logs) override;
  void on_test_begin(Training& training) override;
  void on_test_batch_end(Training& training) override;
  void on_test_end(Training& training, const Logs& logs) override;
  void on_train_end(Training& training) override;
  void on_train_failed(Training& training) override { on_train_end(training); }
  bool can_be_late() const override { return true; }

 private:
  using Clock = std::chrono::steady_clock;

  void begin(const std::string& title);
  void update(Training& training);
  void finish(Training& training, const Logs& logs);
  void draw(Training& training, const Logs& logs, bool is_last);
  std::string line(Training& training, const Logs& logs, bool is_last) const;

  // Const after construction.
  Verbose verbose_;
  std::FILE* out_;

  // Used only on the thread that called fit().
  std::string title_;
  Clock::time_point start_;
  Clock::time_point drawn_at_;
  std::int64_t first_step_ = 0;  // of an epoch that was resumed
  double seconds_a_step_ = 0;    // of training, without validation
  std::size_t drawn_columns_ = 0;
  bool is_in_epoch_ = false;  // validation between epochs shows no bar of its own
  bool is_line_open_ = false;
};

}  // namespace lockstep

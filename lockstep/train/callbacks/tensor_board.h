#pragma once

#include <chrono>
#include <cstdint>
#include <memory>
#include <string>

#include "lockstep/train/callbacks/callback.h"

namespace lockstep {

class EventWriter;

struct TensorBoardOptions {
  // Scalars of the running epoch every so many updates of the weights, as batch_loss and so on; 0: only those of epochs.
  std::int64_t update_freq = 0;
  // Histograms of the weights every so many epochs; 0: none.
  int histogram_freq = 0;
};

// Writes what TensorBoard and `lockstep report` show: the logs of every epoch (epoch_loss, ...) below <folder>/train and
// <folder>/validation, steps a second, where the time of the steps went, and, if wanted, the weights. The chief writes.
class TensorBoard : public Callback {
 public:
  explicit TensorBoard(std::string folder = "logs", const TensorBoardOptions& options = {});

  // Throws kFailedPrecondition when the folder cannot be written to.
  void on_train_begin(Training& training) override;
  void on_epoch_begin(Training& training) override;
  void on_train_batch_end(Training& training) override;
  void on_epoch_end(Training& training, Logs& logs) override;
  void on_train_end(Training& training) override;
  void on_train_failed(Training& training) override { on_train_end(training); }
  bool can_be_late() const override { return options_.update_freq == 0; }

 private:
  void write_histograms(Training& training);

  // Const after construction.
  std::string folder_;
  TensorBoardOptions options_;

  // Used only on the thread that called fit().
  std::shared_ptr<EventWriter> train_;       // null: not the chief
  std::shared_ptr<EventWriter> validation_;  // made when there is something to write
  std::chrono::steady_clock::time_point epoch_start_;
  std::int64_t first_step_ = 0;
};

}  // namespace lockstep

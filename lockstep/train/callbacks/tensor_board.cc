#include "lockstep/train/callbacks/tensor_board.h"

#include "lockstep/base/str.h"
#include "lockstep/observe/event_writer.h"
#include "lockstep/observe/step_stats.h"
#include "lockstep/observe/summary.h"
#include "lockstep/train/model/model.h"

namespace lockstep {
namespace {

const std::string kValidation = "val_";

}  // namespace

TensorBoard::TensorBoard(std::string folder, const TensorBoardOptions& options)
    : folder_(std::move(folder)), options_(options) {
  require(!folder_.empty(), "TensorBoard: the folder has no name");
  if (options.update_freq < 0 || options.histogram_freq < 0)
    throw Error(ErrorCode::kInvalidArgument,
                str("TensorBoard: update_freq is ", options.update_freq, ", histogram_freq is ", options.histogram_freq,
                    "; they count steps and epochs, from 1 on, and 0 turns them off"));
}

void TensorBoard::on_train_begin(Training& training) {
  if (training.is_chief()) train_ = std::make_shared<EventWriter>(folder_ + "/train");
}

void TensorBoard::on_epoch_begin(Training& training) {
  epoch_start_ = std::chrono::steady_clock::now();
  first_step_ = training.step();
}

void TensorBoard::on_train_batch_end(Training& training) {
  if (train_ == nullptr || options_.update_freq == 0) return;
  // Between updates the count stands still: a point for each update, not for each batch.
  if (!training.is_between_updates() || training.iterations() % options_.update_freq != 0) return;
  for (const auto& [name, value] : training.logs()) train_->scalar("batch_" + name, value, training.iterations());
}

void TensorBoard::on_epoch_end(Training& training, Logs& logs) {
  if (train_ == nullptr) return;
  const std::chrono::duration<double> seconds = std::chrono::steady_clock::now() - epoch_start_;
  for (const auto& [name, value] : logs) {
    const bool is_validation = name.starts_with(kValidation);
    if (is_validation && validation_ == nullptr) validation_ = std::make_shared<EventWriter>(folder_ + "/validation");
    if (is_validation) validation_->scalar("epoch_" + name.substr(kValidation.size()), value, training.epoch());
    else train_->scalar("epoch_" + name, value, training.epoch());
  }
  if (!logs.find("learning_rate")) train_->scalar("epoch_learning_rate", training.learning_rate(), training.epoch());
  train_->scalar("epoch_steps_per_second", static_cast<double>(training.step() - first_step_) / seconds.count(),
                 training.epoch());
  if (const auto* stats = training.step_stats()) {
    for (const auto& [tag, value] : stats->scalars()) train_->scalar(tag, value, training.epoch());
    if (const auto lines = stats->straggler_lines(); !lines.empty()) train_->text(kStragglersTag, lines, training.epoch());
  }
  if (options_.histogram_freq > 0 && training.epoch() % options_.histogram_freq == 0) write_histograms(training);
}

void TensorBoard::write_histograms(Training& training) {
  for (const auto& [name, tensor] : training.model().weights().tensors)
    write_histogram(*train_, name + "/histogram", tensor, training.epoch());
}

void TensorBoard::on_train_end(Training&) {
  train_.reset();
  validation_.reset();
}

}  // namespace lockstep

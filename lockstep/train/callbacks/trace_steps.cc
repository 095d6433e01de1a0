#include "lockstep/train/callbacks/trace_steps.h"

#include <utility>

#include "lockstep/base/str.h"
#include "lockstep/base/trace.h"
#include "lockstep/checkpoint/directory_lock.h"
#include "lockstep/observe/gather_trace.h"
#include "lockstep/train/model/model.h"

namespace lockstep {

TraceSteps::TraceSteps(std::string file, std::int64_t first, std::int64_t count)
    : file_(std::move(file)), first_(first), count_(count) {
  if (file_.empty() || first < 0 || count < 1)
    throw Error(ErrorCode::kInvalidArgument,
                str("TraceSteps: the file is '", file_, "', the first step ", first, ", and ", count,
                    " steps are wanted; give a file's name, a first step from 0 on, and at least one step"));
}

void TraceSteps::on_train_begin(Training& training) {
  done_ = 0;
  if (training.is_chief()) lock_ = std::make_shared<FileLock>(file_, FileLock::Folder::kIsMade);
}

void TraceSteps::on_train_batch_begin(Training&) {
  if (done_ != first_ || is_recording_) return;
  trace::start();
  is_recording_ = true;
}

void TraceSteps::on_train_batch_end(Training& training) {
  if (++done_ == first_ + count_ && is_recording_) write(training);
}

void TraceSteps::on_train_end(Training& training) {
  if (is_recording_) write(training);
  lock_.reset();
}

void TraceSteps::on_train_failed(Training&) {
  lock_.reset();
  if (std::exchange(is_recording_, false)) trace::stop();  // the others' spans cannot be asked for
}

void TraceSteps::write(Training& training) {
  is_recording_ = false;
  write_trace(file_, trace::stop(), training.model().strategy());
}

}  // namespace lockstep

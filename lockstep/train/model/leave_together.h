#pragma once

#include <exception>
#include <utility>

#include "lockstep/fwd.h"
#include "lockstep/train/callbacks/training.h"

namespace lockstep::internal {

// Calls a callback. Alone, what it throws is thrown. One of several workers goes on to where all leave together, with the
// failure in `training`: the others would wait for it.
template <typename F>
void guarded(WorkerGroup* workers, Training& training, F&& call) {
  if (workers == nullptr) return std::forward<F>(call)();
  try {
    std::forward<F>(call)();
  } catch (...) {
    training.fail(std::current_exception());
  }
}

// All workers call it at the same step. When training has failed on one of them, all throw: that one what it has, the others an
// Error with its code that names the worker.
void throw_if_failed(WorkerGroup* workers, const Training& training);

}  // namespace lockstep::internal

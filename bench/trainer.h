#pragma once

#include <algorithm>
#include <array>
#include <chrono>
#include <cstdint>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "bench/models.h"

namespace bench {

struct TrainOptions {
  std::string model = "W1";
  int replicas = 2;
  std::int64_t part = 0;          // independent: which part of the data
  std::int64_t bucket_bytes = 0;  // 0: the library's default
  bool is_channels_last = false;
  // lockstep: every replica takes the mean loss of its own examples, and gradients are averaged, as in DDP. Otherwise the
  // loss is compute_average_loss over the global batch, and gradients are summed.
  bool has_mean_loss = true;
};

// What one window of training did.
struct Window {
  std::int64_t steps = 0;
  std::int64_t examples = 0;
  double seconds = 0;
  double examples_per_second = 0;  // of replicas that do not wait for each other: the sum of their own rates
  double loss = 0;                 // mean of the last 16 steps
};

// The losses of the last pass over the 16 batches. They are kept as they are and only read when a window is over.
template <typename Loss>
class RecentLosses {
 public:
  void add(Loss loss) { losses_[static_cast<std::size_t>(count_++ % kBatches)] = std::move(loss); }

  template <typename ToDouble>
  double mean(ToDouble to_double) const {
    const auto count = std::min(count_, kBatches);
    double sum = 0;
    for (std::int64_t i = 0; i < count; ++i) sum += to_double(losses_[static_cast<std::size_t>(i)]);
    return sum / static_cast<double>(count);
  }

 private:
  std::array<Loss, kBatches> losses_;
  std::int64_t count_ = 0;
};

// Whole steps of so many examples until `seconds` have passed, or as many steps as are given; at least one.
template <typename Step>
Window timed_steps(double seconds, std::int64_t examples, Step&& step, std::int64_t steps = 0) {
  using Clock = std::chrono::steady_clock;
  Window window;
  const auto start = Clock::now();
  do {
    step();
    ++window.steps;
    window.seconds = std::chrono::duration<double>(Clock::now() - start).count();
  } while (steps > 0 ? window.steps < steps : window.seconds < seconds);
  window.examples = window.steps * examples;
  window.examples_per_second = static_cast<double>(window.examples) / window.seconds;
  return window;
}

// One way of training one model, kept alive between windows.
class Trainer {
 public:
  virtual ~Trainer() = default;

  // Trains for about `seconds`, whole steps, at least one.
  virtual Window train(double seconds) = 0;

  // Bytes of gradient buckets that this way needs beside the models.
  virtual std::int64_t bucket_bytes() const { return 0; }
};

// `replicas` model copies, each trained by a thread of its own that never talks to another; 1: on the calling thread.
// Plain LibTorch: nothing of Lockstep is called.
std::unique_ptr<Trainer> make_plain_trainer(const TrainOptions& options);

// MirroredStrategy over `replicas` logical CPUs; gradients overlap with backward or not.
std::unique_ptr<Trainer> make_lockstep_trainer(const TrainOptions& options, bool has_overlap);

// One worker of a MultiWorkerMirroredStrategy with one replica, as TF_CONFIG says.
std::unique_ptr<Trainer> make_worker_trainer(const TrainOptions& options, bool has_overlap);

// Model::fit of W1, W2 or W3 on a dataset in memory: nothing but the loss, or with accuracy, a progress bar, TensorBoard's
// scalars of every step and a trace of all steps.
std::unique_ptr<Trainer> make_fit_trainer(const TrainOptions& options, bool has_everything);

// The training of make_fit_trainer() as a loop that a user writes: the same dataset distributed, compute_average_loss.
std::unique_ptr<Trainer> make_loop_trainer(const TrainOptions& options);

std::vector<std::string> device_names(int replicas);

void to_channels_last(torch::nn::Module& module);

}  // namespace bench

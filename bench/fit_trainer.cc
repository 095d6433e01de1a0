#include <unistd.h>

#include <chrono>
#include <cstdio>
#include <filesystem>
#include <stdexcept>

#include "bench/trainer.h"
#include "lockstep/lockstep.h"

namespace bench {
namespace {

namespace ls = lockstep;
using Clock = std::chrono::steady_clock;

// The examples of all replicas in global batches, pass after pass.
ls::data::Dataset make_dataset(const Workload& workload, int replicas) {
  std::vector<std::vector<Batch>> parts;
  for (int replica = 0; replica < replicas; ++replica) parts.push_back(make_batches(workload, replica));
  std::vector<at::Tensor> x, y;
  for (std::size_t i = 0; i < static_cast<std::size_t>(kBatches); ++i)
    for (const auto& part : parts) {
      x.push_back(part[i].first);
      y.push_back(part[i].second);
    }
  return ls::data::Dataset::from_tensor_slices({at::cat(x), at::cat(y)})
      .batch(workload.batch * replicas)
      .repeat()
      .prefetch(ls::data::kAutotune);
}

// What a training writes beside its weights; gone with it.
class Files {
 public:
  Files() : folder_("/tmp/lockstep_fit_bench_" + std::to_string(getpid())) {
    std::filesystem::create_directories(folder_);
    screen_ = std::fopen((folder_ + "/screen").c_str(), "w");
    if (screen_ == nullptr) throw std::runtime_error("cannot write to '" + folder_ + "'");
  }
  ~Files() {
    std::fclose(screen_);
    std::error_code ignored;
    std::filesystem::remove_all(folder_, ignored);
  }
  Files(const Files&) = delete;
  Files& operator=(const Files&) = delete;

  // The progress bar, the scalars of every step, a trace of every step.
  ls::Callbacks everything(std::int64_t steps) const {
    return {ls::ProgressBar(ls::Verbose::kBar, screen_), ls::TensorBoard(folder_ + "/logs", {.update_freq = 1}),
            ls::TraceSteps(folder_ + "/trace.json", 0, steps)};
  }

 private:
  const std::string folder_;
  std::FILE* screen_ = nullptr;
};

// Model::fit, a window an epoch; some epochs as long as it is not known how many steps a window has.
class FitTrainer final : public Trainer {
 public:
  FitTrainer(const TrainOptions& options, bool has_everything)
      : workload_(find_workload(options.model)),
        has_everything_(has_everything),
        strategy_(device_names(options.replicas)),
        scope_(strategy_.scope()),
        model_(ls::mirrored_from([&] {
          auto net = make_net(options.model);
          if (options.is_channels_last) to_channels_last(*net);
          return net;
        })),
        dataset_(make_dataset(workload_, options.replicas)) {
    if (!workload_.has_images) throw std::invalid_argument("fit trains W1, W2 and W3");
    const auto rate = workload_.learning_rate;
    model_.compile({.optimizer = workload_.is_adam ? ls::OptimizerSpec(ls::Adam(rate)) : ls::OptimizerSpec(ls::SGD(rate)),
                    .loss = ls::sparse_categorical_crossentropy({.from_logits = true}),
                    .metrics = has_everything_ ? std::vector<ls::Metric>{"accuracy"} : std::vector<ls::Metric>{}});
  }

  Window train(double seconds) override {
    Window window;
    const auto start = Clock::now();
    do {
      const auto steps = std::max<std::int64_t>(1, static_cast<std::int64_t>(steps_per_second_ * seconds));
      const auto history = model_.fit(dataset_, {.epochs = 1,
                                                 .steps_per_epoch = steps,
                                                 .callbacks = has_everything_ ? files_.everything(steps) : ls::Callbacks{},
                                                 .verbose = ls::Verbose::kSilent});
      window.steps += steps;
      window.seconds = std::chrono::duration<double>(Clock::now() - start).count();
      window.loss = history.at("loss").back();
      steps_per_second_ = static_cast<double>(window.steps) / window.seconds;
    } while (window.seconds < 0.5 * seconds);
    window.examples = window.steps * workload_.batch * strategy_.num_replicas_in_sync();
    window.examples_per_second = static_cast<double>(window.examples) / window.seconds;
    return window;
  }

 private:
  // In this order: the model belongs to the scope.
  const Workload workload_;
  const bool has_everything_;
  ls::MirroredStrategy strategy_;
  ls::Scope scope_;
  ls::Model model_;
  const ls::data::Dataset dataset_;
  const Files files_;
  double steps_per_second_ = 2;
};

class LoopTrainer final : public Trainer {
 public:
  explicit LoopTrainer(const TrainOptions& options)
      : workload_(find_workload(options.model)),
        strategy_(device_names(options.replicas)),
        scope_(strategy_.scope()),
        model_(ls::mirrored_from([&] { return make_net(options.model); })),
        optimizer_(workload_.is_adam
                       ? ls::optimizer<torch::optim::Adam>(model_, torch::optim::AdamOptions(workload_.learning_rate))
                       : ls::optimizer<torch::optim::SGD>(model_, torch::optim::SGDOptions(workload_.learning_rate))),
        dataset_(strategy_.experimental_distribute_dataset(make_dataset(workload_, options.replicas))),
        batches_(dataset_.make_iterator()) {}

  Window train(double seconds) override {
    auto window = timed_steps(seconds, workload_.batch * strategy_.num_replicas_in_sync(), [this] { losses_.add(step()); });
    window.loss = losses_.mean([&](const auto& loss) { return strategy_.reduce("sum", loss).template item<double>(); });
    return window;
  }

 private:
  ls::PerReplica<at::Tensor> step() {
    const auto global_batch = workload_.batch * strategy_.num_replicas_in_sync();
    return strategy_.run(
        [&](const at::Tensor& x, const at::Tensor& y) {
          const auto losses = model_->loss(model_->forward(x), y, LossReduction::kNone);
          const auto loss = ls::compute_average_loss(losses, global_batch);
          loss.backward();
          optimizer_.step();
          return loss.detach();
        },
        *batches_.next());
  }

  // In this order: the model and the optimizer belong to the scope.
  const Workload workload_;
  ls::MirroredStrategy strategy_;
  ls::Scope scope_;
  ls::MirroredModule<Net> model_;
  ls::Optimizer optimizer_;
  ls::DistributedDataset dataset_;
  ls::DistributedIterator batches_;
  RecentLosses<ls::PerReplica<at::Tensor>> losses_;
};

}  // namespace

std::unique_ptr<Trainer> make_loop_trainer(const TrainOptions& options) { return std::make_unique<LoopTrainer>(options); }

std::unique_ptr<Trainer> make_fit_trainer(const TrainOptions& options, bool has_everything) {
  return std::make_unique<FitTrainer>(options, has_everything);
}

}  // namespace bench

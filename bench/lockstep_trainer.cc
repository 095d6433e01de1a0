#include "bench/trainer.h"
#include "lockstep/lockstep.h"

namespace bench {
namespace {

namespace ls = lockstep;

// One PerReplica of inputs and one of targets for each of the 16 steps of a pass.
struct Inputs {
  Inputs(const Workload& workload, const ls::ReplicaSet& replicas) {
    std::vector<std::vector<Batch>> parts;
    for (int replica = 0; replica < replicas.size(); ++replica)
      parts.push_back(make_batches(workload, replicas.first_replica() + replica));
    for (std::size_t i = 0; i < static_cast<std::size_t>(kBatches); ++i) {
      std::vector<at::Tensor> xs, ys;
      for (const auto& part : parts) {
        xs.push_back(part[i].first);
        ys.push_back(part[i].second);
      }
      x.emplace_back(std::move(xs));
      y.emplace_back(std::move(ys));
    }
  }

  std::vector<ls::PerReplica<at::Tensor>> x, y;
};

ls::Optimizer make_optimizer(const Workload& workload, const ls::MirroredModule<Net>& model, const TrainOptions& options,
                             bool has_overlap) {
  ls::GradientOptions gradients{.reduce = options.has_mean_loss ? ls::ReduceOp::kMean : ls::ReduceOp::kSum,
                                .overlap = has_overlap};
  if (options.bucket_bytes > 0) gradients.bucket_bytes = options.bucket_bytes;
  if (workload.is_adam)
    return ls::optimizer<torch::optim::Adam>(model, torch::optim::AdamOptions(workload.learning_rate),
                                             {.gradients = gradients});
  return ls::optimizer<torch::optim::SGD>(model, torch::optim::SGDOptions(workload.learning_rate), {.gradients = gradients});
}

// The training loop of the README, with batches that are in memory.
class LockstepTrainer final : public Trainer {
 public:
  LockstepTrainer(const TrainOptions& options, bool has_overlap, std::unique_ptr<ls::Strategy> strategy)
      : workload_(find_workload(options.model)),
        has_mean_loss_(options.has_mean_loss),
        owned_(std::move(strategy)),
        strategy_(*owned_),
        scope_(strategy_.scope()),
        model_(ls::mirrored_from([&] {
          auto net = make_net(options.model);
          if (options.is_channels_last) to_channels_last(*net);
          return net;
        })),
        optimizer_(make_optimizer(workload_, model_, options, has_overlap)),
        inputs_(workload_, strategy_.replicas()) {}

  Window train(double seconds) override {
    const auto agreed = agreed_steps(seconds);
    auto window = timed_steps(
        seconds, workload_.batch * strategy_.replicas().size(), [this] { losses_.add(step()); }, agreed);
    steps_per_second_ = static_cast<double>(window.steps) / window.seconds;
    const auto op = has_mean_loss_ ? ls::ReduceOp::kMean : ls::ReduceOp::kSum;
    window.loss = losses_.mean([&](const auto& loss) { return strategy_.reduce(op, loss).template item<double>(); });
    return window;
  }

  std::int64_t bucket_bytes() const override {
    std::int64_t bytes = 0;
    for (const auto& parameter : model_->parameters()) {
      const auto size = static_cast<std::int64_t>(parameter.nbytes());
      if (size < ls::kSummedInPlaceBytes) bytes += size;
    }
    return bytes * strategy_.num_replicas_in_sync();
  }

 private:
  // Workers that wait for each other must make equally many steps: worker 0 says how many. 0: one process, no need.
  std::int64_t agreed_steps(double seconds) {
    if (strategy_.replicas().workers() == nullptr) return 0;
    const bool decides = strategy_.replicas().first_replica() == 0;
    const auto wanted = decides ? std::max(1.0, steps_per_second_ * seconds) : 0.0;
    return static_cast<std::int64_t>(strategy_.reduce("sum", at::scalar_tensor(wanted, at::kDouble)).item<double>());
  }

  std::int64_t global_batch() const { return workload_.batch * strategy_.num_replicas_in_sync(); }

  at::Tensor loss_of(const at::Tensor& x, const at::Tensor& y) {
    const auto output = model_->forward(x);
    if (has_mean_loss_) return model_->loss(output, y, LossReduction::kMean);
    return ls::compute_average_loss(model_->loss(output, y, LossReduction::kNone), global_batch());
  }

  ls::PerReplica<at::Tensor> step() {
    const auto i = static_cast<std::size_t>(next_++ % kBatches);
    return strategy_.run(
        [&](const at::Tensor& x, const at::Tensor& y) {
          const auto loss = loss_of(x, y);
          loss.backward();
          optimizer_.step();
          return loss.detach();
        },
        inputs_.x[i], inputs_.y[i]);
  }

  // In this order: the model and the optimizer belong to the scope.
  const Workload workload_;
  const bool has_mean_loss_;
  const std::unique_ptr<ls::Strategy> owned_;
  ls::Strategy& strategy_;
  ls::Scope scope_;
  ls::MirroredModule<Net> model_;
  ls::Optimizer optimizer_;
  const Inputs inputs_;
  RecentLosses<ls::PerReplica<at::Tensor>> losses_;
  std::int64_t next_ = 0;
  double steps_per_second_ = 1;
};

}  // namespace

std::vector<std::string> device_names(int replicas) {
  std::vector<std::string> names;
  for (int i = 0; i < replicas; ++i) names.push_back("CPU:" + std::to_string(i));
  return names;
}

std::unique_ptr<Trainer> make_lockstep_trainer(const TrainOptions& options, bool has_overlap) {
  return std::make_unique<LockstepTrainer>(options, has_overlap,
                                           std::make_unique<ls::MirroredStrategy>(device_names(options.replicas)));
}

std::unique_ptr<Trainer> make_worker_trainer(const TrainOptions& options, bool has_overlap) {
  return std::make_unique<LockstepTrainer>(options, has_overlap, std::make_unique<ls::MultiWorkerMirroredStrategy>());
}

}  // namespace bench

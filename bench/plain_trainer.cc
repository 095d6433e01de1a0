#include <latch>
#include <thread>

#include "bench/trainer.h"

namespace bench {
namespace {

// One model copy, its optimizer and its data.
class Copy {
 public:
  Copy(const TrainOptions& options, std::int64_t part)
      : workload_(find_workload(options.model)), net_(make_net(options.model)), batches_(make_batches(workload_, part)) {
    if (options.is_channels_last) to_channels_last(*net_);
    optimizer_ = make_optimizer(workload_, net_->parameters());
  }

  Window train(double seconds) {
    auto window = timed_steps(seconds, workload_.batch, [this] { losses_.add(step()); });
    window.loss = losses_.mean([](const at::Tensor& loss) { return loss.item<double>(); });
    return window;
  }

 private:
  at::Tensor step() {
    const auto& [x, y] = batches_[static_cast<std::size_t>(next_++ % kBatches)];
    net_->zero_grad(/*set_to_none=*/true);  // cheaper than the optimizer's zeroing, and what Lockstep does
    const auto loss = net_->loss(net_->forward(x), y, LossReduction::kMean);
    loss.backward();
    optimizer_->step();
    return loss.detach();
  }

  const Workload workload_;
  const std::shared_ptr<Net> net_;
  const std::vector<Batch> batches_;
  std::unique_ptr<torch::optim::Optimizer> optimizer_;
  RecentLosses<at::Tensor> losses_;
  std::int64_t next_ = 0;
};

void use_one_thread() {
  at::get_num_threads();  // the first read of a thread takes over the process's default, so it comes first
  at::set_num_threads(1);
}

class PlainTrainer final : public Trainer {
 public:
  explicit PlainTrainer(const TrainOptions& options) {
    use_one_thread();
    torch::manual_seed(1);
    for (int replica = 0; replica < options.replicas; ++replica)
      copies_.push_back(std::make_unique<Copy>(options, options.part + replica));
  }

  Window train(double seconds) override {
    if (copies_.size() == 1) return copies_[0]->train(seconds);
    std::vector<Window> windows(copies_.size());
    std::latch start(static_cast<std::ptrdiff_t>(copies_.size()));
    {
      std::vector<std::jthread> threads;
      for (std::size_t r = 0; r < copies_.size(); ++r)
        threads.emplace_back([&, r] {
          use_one_thread();
          start.arrive_and_wait();
          windows[r] = copies_[r]->train(seconds);
        });
    }
    Window sum;
    for (const auto& window : windows) {
      sum.steps = std::max(sum.steps, window.steps);
      sum.examples += window.examples;
      sum.seconds = std::max(sum.seconds, window.seconds);
      sum.examples_per_second += window.examples_per_second;
      sum.loss += window.loss / static_cast<double>(windows.size());
    }
    return sum;
  }

 private:
  std::vector<std::unique_ptr<Copy>> copies_;
};

}  // namespace

void to_channels_last(torch::nn::Module& module) {
  const torch::NoGradGuard no_grad;
  for (auto& parameter : module.parameters())
    if (parameter.dim() == 4) parameter.set_data(parameter.detach().contiguous(at::MemoryFormat::ChannelsLast));
}

std::unique_ptr<Trainer> make_plain_trainer(const TrainOptions& options) { return std::make_unique<PlainTrainer>(options); }

}  // namespace bench

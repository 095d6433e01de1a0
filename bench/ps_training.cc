#include <torch/torch.h>

#include <optional>
#include <stdexcept>

#include "bench/ps_bench.h"
#include "bench/ps_raw.h"
#include "bench/ps_tasks.h"
#include "bench/timing.h"
#include "lockstep/ps/cluster_coordinator.h"
#include "lockstep/train/hosted.h"
#include "lockstep/train/optimizers/optimizers.h"

namespace bench {
namespace {

namespace ls = lockstep;

// W4 with its table on the server.
class HostedRecommender final : public Net {
 public:
  at::Tensor forward(const at::Tensor& x) override { return last_(torch::relu(first_(table_(x).flatten(1)))).squeeze(1); }
  at::Tensor loss(const at::Tensor& output, const at::Tensor& target, LossReduction) const override {
    return torch::binary_cross_entropy_with_logits(output, target);
  }

 private:
  ls::HostedEmbedding table_ = register_module("table", ls::HostedEmbedding(1'000'000, 32));
  torch::nn::Linear first_ = register_module("first", torch::nn::Linear(26 * 32, 256));
  torch::nn::Linear last_ = register_module("last", torch::nn::Linear(256, 1));
};

struct Model : torch::nn::Module {
  explicit Model(const std::string& name)
      : net(register_module("net", name == "W4" ? std::make_shared<HostedRecommender>() : make_net(name))) {}
  const std::shared_ptr<Net> net;
};

// The 16 batches of a worker, in turns.
struct Batches {
  Batches(const std::string& model, int worker) : all(make_batches(find_workload(model), worker)) {}
  const Batch& next() { return all[at++ % all.size()]; }
  std::vector<Batch> all;
  std::size_t at = 0;
};

// Throws std::invalid_argument where servers cannot replicate.
template <typename Options>
Options with_replication(Options options, int replication) {
  if constexpr (requires { options.replication; }) options.replication = replication;
  else if (replication != 1) throw std::invalid_argument("this build does not replicate variables");
  return options;
}

class PsTrainer : public Trainer {
 public:
  explicit PsTrainer(const PsCluster& cluster)
      : tasks_(cluster.servers, 2),
        strategy_(tasks_.chief(), nullptr, with_replication(ls::ParameterServerOptions(), cluster.replication)),
        coordinator_(strategy_) {}

  Window train(double seconds) override {
    Window window;
    const auto begin = now_us();
    do {
      const auto count = std::max<std::int64_t>(1, static_cast<std::int64_t>(rate_ * seconds));
      for (std::int64_t i = 0; i < count; ++i) schedule();
      coordinator_.join();
      window.steps += count;
      window.seconds = 1e-6 * (now_us() - begin);
      rate_ = static_cast<double>(window.steps) / window.seconds;
    } while (window.seconds < 0.5 * seconds);  // the rate is not known before the first window
    window.examples = window.steps * batch();
    window.examples_per_second = static_cast<double>(window.examples) / window.seconds;
    window.loss = loss();
    return window;
  }

 protected:
  virtual void schedule() = 0;
  virtual std::int64_t batch() const { return 1; }
  virtual double loss() { return 0; }
  ls::ClusterCoordinator& coordinator() { return coordinator_; }
  ls::ParameterServerStrategy& strategy() { return strategy_; }

 private:
  const Tasks tasks_;
  ls::ParameterServerStrategy strategy_;
  ls::ClusterCoordinator coordinator_;
  double rate_ = 10;
};

class EmptyClosures final : public PsTrainer {
 public:
  using PsTrainer::PsTrainer;

 private:
  void schedule() override {
    coordinator().schedule([] {});
  }
};

// Updates by the coordinator itself: one variable, on the first server.
class RowPushes final : public PsTrainer {
 public:
  explicit RowPushes(const PsCluster& cluster) : PsTrainer(cluster) {
    const auto scope = strategy().scope();
    table_.emplace(torch::zeros({kRows, kWidth}), ls::VariableOptions{.name = "table"});
    for (std::uint32_t batch = 0; batch < kIdBatches; ++batch) ids_.push_back(torch::tensor(random_ids(batch, kRows)));
  }

 private:
  void schedule() override { table_->scatter_add({values_, ids_[at_++ % ids_.size()]}); }

  static constexpr std::int64_t kRows = 1'000'000;
  static constexpr auto kWidth = static_cast<std::int64_t>(kColumns);
  std::optional<ls::Variable> table_;
  std::vector<at::Tensor> ids_;
  std::size_t at_ = 0;
  const at::Tensor values_ = torch::ones({static_cast<std::int64_t>(kRowsAtOnce), kWidth});
};

class DensePushes final : public PsTrainer {
 public:
  explicit DensePushes(const PsCluster& cluster) : PsTrainer(cluster) {
    const auto scope = strategy().scope();
    dense_.emplace(torch::zeros_like(values_), ls::VariableOptions{.name = "dense"});
  }

 private:
  void schedule() override { dense_->assign_add(values_); }

  const at::Tensor values_ = torch::ones({static_cast<std::int64_t>(kDenseBytes / sizeof(float))});
  std::optional<ls::Variable> dense_;
};

class Steps final : public PsTrainer {
 public:
  Steps(const std::string& model, const PsCluster& cluster)
      : PsTrainer(cluster),
        workload_(find_workload(model)),
        model_(strategy().hosted<Model>(model)),
        batches_(coordinator().create_per_worker_resource(
            [](ls::WorkerContext& worker, const std::string& name) {
              return std::make_shared<Batches>(name, worker.worker_index());
            },
            model)) {
    model_.set_optimizer(ls::SGD(workload_.learning_rate));
  }

 private:
  void schedule() override {
    losses_.add(coordinator().schedule(
        [](ls::Hosted<Model>& model, Batches& batches) {
          const auto& [x, y] = batches.next();
          const auto& net = model->net;
          const auto loss = net->loss(net->forward(x), y, LossReduction::kMean);
          loss.backward();
          model.push();
          return loss.item<double>();
        },
        model_, batches_));
  }
  std::int64_t batch() const override { return workload_.batch; }
  double loss() override {
    return losses_.mean([](const auto& one) { return one->get(); });
  }

  const Workload workload_;
  ls::HostedModel<Model> model_;
  ls::PerWorkerValues<Batches> batches_;
  RecentLosses<std::optional<ls::RemoteValue<double>>> losses_;
};

}  // namespace

std::unique_ptr<Trainer> make_ps_trainer(const std::string& work, const PsCluster& cluster) {
  if (work == "closures") return std::make_unique<EmptyClosures>(cluster);
  if (work == "push_rows") return std::make_unique<RowPushes>(cluster);
  if (work == "push_dense") return std::make_unique<DensePushes>(cluster);
  return std::make_unique<Steps>(work, cluster);
}

}  // namespace bench

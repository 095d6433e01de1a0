// What can be seen of a training run: TensorBoard's event files, a trace of some steps, the times of every step, an endpoint
// for Prometheus. One process, or several: lockstep run -n 2 observe --folder logs; then lockstep report logs.
#include <lockstep/lockstep.h>
#include <lockstep/observe/event_writer.h>
#include <lockstep/observe/gather_trace.h>
#include <lockstep/observe/metrics_endpoint.h>
#include <lockstep/observe/step_exchange.h>
#include <lockstep/observe/summary.h>

#include <iostream>
#include <optional>

namespace ls = lockstep;
using ls::trace::Category;

namespace {

struct Net : torch::nn::Module {
  Net() : hidden(register_module("hidden", torch::nn::Linear(784, 64))), out(register_module("out", torch::nn::Linear(64, 10))) {}
  torch::Tensor forward(torch::Tensor x) { return out(torch::relu(hidden(x.flatten(1)))); }
  torch::nn::Linear hidden, out;
};

// Loss and accuracy of all examples seen since the last call.
struct Results {
  ls::Variable loss{0.0, {.synchronization = ls::VariableSynchronization::kOnRead, .aggregation = ls::VariableAggregation::kSum}};
  ls::Variable correct{0.0, {.synchronization = ls::VariableSynchronization::kOnRead, .aggregation = ls::VariableAggregation::kSum}};
  ls::Variable count{0.0, {.synchronization = ls::VariableSynchronization::kOnRead, .aggregation = ls::VariableAggregation::kSum}};

  void add(const torch::Tensor& losses, const torch::Tensor& logits, const torch::Tensor& labels) {
    loss.assign_add(losses.detach().sum());
    correct.assign_add(logits.detach().argmax(1).eq(labels).sum().to(torch::kFloat));
    count.assign_add(static_cast<double>(labels.size(0)));
  }
  std::pair<double, double> take() {
    const double total = count.value().item<double>();
    const std::pair means(loss.value().item<double>() / total, correct.value().item<double>() / total);
    for (auto* variable : {&loss, &correct, &count}) variable->assign(0.0);
    return means;
  }
};

torch::Tensor losses_of(const torch::Tensor& logits, const torch::Tensor& labels) {
  return torch::nll_loss(torch::log_softmax(logits, 1), labels, {}, torch::Reduction::None);
}

struct Trainer {
  // [spans]
  void train_step(const torch::Tensor& x, const torch::Tensor& y) {
    torch::Tensor logits, losses;
    {
      const ls::trace::Span span("forward", Category::kCompute);
      logits = model->forward(x);
      losses = losses_of(logits, y);
    }
    {
      const ls::trace::Span span("backward", Category::kCompute);
      ls::compute_average_loss(losses, global_batch).backward();
    }
    optimizer.step();
    results.add(losses, logits, y);
  }
  // [spans]

  void test_step(const torch::Tensor& x, const torch::Tensor& y) {
    const torch::NoGradGuard no_grad;
    const auto logits = model->forward(x);
    results.add(losses_of(logits, y), logits, y);
  }

  int64_t global_batch;
  ls::MirroredModule<Net> model = ls::mirrored<Net>();
  ls::Optimizer optimizer = ls::optimizer<torch::optim::Adam>(model, 1e-3);
  Results results = {};
};

// [writers]
// The chief has writers; train/ and validation/ are two runs for TensorBoard, and one with two curves for `lockstep report`.
struct Events {
  explicit Events(const std::string& folder) : train(folder + "/train"), validation(folder + "/validation") {
    train.text("about", "Two layers, **Adam**", 0);
  }
  ls::EventWriter train;
  ls::EventWriter validation;
};
// [writers]

// [epoch]
void write_epoch(Events& events, const Net& model, const ls::StepStats& stats, int epoch) {
  ls::write_histogram(events.train, "hidden/weight", model.hidden->weight, epoch);
  ls::write_image(events.train, "hidden", model.hidden->weight.slice(0, 0, 16).view({16, 1, 28, 28}) * 4 + 0.5, epoch);
  for (const auto& [tag, value] : stats.scalars()) events.train.scalar(tag, value, epoch);
  events.train.text(ls::kStragglersTag, stats.straggler_lines(), epoch);
  std::cout << stats.summary();
}
// [epoch]

ls::Checkpoint checkpoint_of(Trainer& trainer, ls::Strategy& strategy) {
  ls::Checkpoint checkpoint(strategy);
  return checkpoint.track("model", trainer.model).track("optimizer", ls::optimizer_part(trainer.optimizer));
}

struct Arguments {
  Arguments(int argc, char** argv) {
    for (int k = 1; k < argc; ++k) {
      if (std::string(argv[k]) == "--test") is_test = true;
      else if (std::string(argv[k]) == "--folder" && k + 1 < argc) folder = argv[++k];
    }
  }
  std::string folder = "observe_logs";
  bool is_test = false;
};

}  // namespace

int main(int argc, char** argv) {
  const auto [folder, is_test] = Arguments(argc, argv);
  torch::manual_seed(1);
  ls::MultiWorkerMirroredStrategy strategy;
  const int64_t global_batch = 64 * strategy.num_replicas_in_sync();
  const auto images = ls::data::fashion_mnist("train").take(is_test ? 4000 : 20'000);
  const auto train = strategy.experimental_distribute_dataset(images.shuffle(20'000, 1).batch(global_batch, true).prefetch());
  const auto test = strategy.experimental_distribute_dataset(ls::data::fashion_mnist("test").take(1000).batch(500));
  const auto scope = strategy.scope();
  Trainer trainer{global_batch};
  std::optional<Events> events;
  if (strategy.is_chief()) events.emplace(folder);

  // [endpoint]
  const auto metrics = std::make_shared<ls::MetricsRegistry>();
  const ls::MetricsEndpoint endpoint("127.0.0.1:0", metrics);  // a port of your choice; 0 takes a free one
  auto& steps = metrics->counter("lockstep_steps_total", "Training steps");
  auto& loss_now = metrics->gauge("lockstep_loss", "Mean loss of the last epoch", {{"part", "train"}});
  std::cout << "http://127.0.0.1:" << endpoint.port() << "/metrics\n";
  // [endpoint]

  ls::CheckpointManager manager(checkpoint_of(trainer, strategy), folder + "/checkpoints");
  ls::StepStats stats(strategy.num_workers());
  ls::StepClock clock;
  int64_t step = 0;
  for (int epoch = 0; epoch < 5; ++epoch) {
    // [steps]
    clock.enter(ls::StepPhase::kInput);
    for (auto batch : train) {
      if (step == 10) ls::trace::start();
      clock.enter(ls::StepPhase::kCompute);
      strategy.run([&](torch::Tensor x, torch::Tensor y) { trainer.train_step(x, y); }, batch);
      if (step == 15) manager.save(step);
      if (++step == 20) {
        manager.wait();  // how long writing took is to be in the trace
        ls::write_trace(folder + "/trace.json", ls::trace::stop(), strategy);
      }
      steps.add();
      stats.add(ls::exchange_step_times(strategy, clock.end_step()));  // five numbers from every worker
      clock.enter(ls::StepPhase::kInput);
    }
    clock.enter(ls::StepPhase::kOther);
    // [steps]
    const auto [train_loss, train_accuracy] = trainer.results.take();
    for (auto batch : test) strategy.run([&](torch::Tensor x, torch::Tensor y) { trainer.test_step(x, y); }, batch);
    const auto [test_loss, test_accuracy] = trainer.results.take();
    loss_now.set(train_loss);
    if (events) {
      // [scalars]
      events->train.scalar("epoch_loss", train_loss, epoch);
      events->train.scalar("epoch_accuracy", train_accuracy, epoch);
      events->validation.scalar("epoch_loss", test_loss, epoch);
      events->validation.scalar("epoch_accuracy", test_accuracy, epoch);
      // [scalars]
      write_epoch(*events, *trainer.model, stats, epoch);
    }
    stats.reset();
  }
}

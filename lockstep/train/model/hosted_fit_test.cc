#include <torch/torch.h>

#include <condition_variable>
#include <mutex>
#include <thread>

#include "lockstep/lockstep.h"
#include "tests/support/free_ports.h"
#include "tests/support/scratch_folder.h"
#include "tests/support/server_cluster.h"
#include "tests/support/testing.h"

// Model::fit, evaluate and the rest over modules on parameter servers; servers and workers are in this process.

namespace lockstep {
namespace {

using testing::ServerCluster;

struct Net : torch::nn::Module {
  explicit Net(std::int64_t width)
      : first(register_module("first", torch::nn::Linear(4, width))),
        norm(register_module("norm", torch::nn::BatchNorm1d(width))),
        second(register_module("second", torch::nn::Linear(width, 3))) {}
  torch::Tensor forward(const torch::Tensor& x) { return second(torch::relu(norm(first(x)))); }
  torch::nn::Linear first;
  torch::nn::BatchNorm1d norm;
  torch::nn::Linear second;
};

struct Words : torch::nn::Module {
  Words(std::int64_t rows, std::int64_t columns)
      : table(register_module("table", HostedEmbedding(rows, columns))),
        top(register_module("top", torch::nn::Linear(columns, 1))) {}
  torch::Tensor forward(const torch::Tensor& ids) { return top(table(ids).mean(1)); }
  HostedEmbedding table;
  torch::nn::Linear top;
};

constexpr std::int64_t kRows = 92;  // 11 batches of 8, and one of 4
constexpr std::int64_t kSteps = 12;

torch::Tensor rows_of(std::int64_t count) { return (torch::arange(count * 4, torch::kFloat).reshape({count, 4}) * 0.37).sin(); }
torch::Tensor labels_of(const torch::Tensor& x) { return x.narrow(1, 0, 3).argmax(1); }
data::Dataset batches() {
  const auto x = rows_of(kRows);
  return data::Dataset::from_tensor_slices({x, labels_of(x)}).batch(8);
}
data::Dataset more_batches() {
  const auto x = rows_of(kRows + 40).narrow(0, 40, kRows);
  return data::Dataset::from_tensor_slices({x, labels_of(x)}).batch(8);
}

const auto kTrain = [](const InputContext&) { return batches(); };
const auto kTest = [] { return more_batches(); };

Loss classes() { return sparse_categorical_crossentropy({.from_logits = true}); }

CompileOptions options_of(const OptimizerSpec& optimizer = SGD(0.1)) {
  return {.optimizer = optimizer,
          .loss = classes(),
          .metrics = {"accuracy", metrics::SparseTopKCategoricalAccuracy({.k = 2}).renamed("top_2")}};
}

// A job in this process with a model of Net(6), made with the same seed each time.
struct Job {
  explicit Job(int workers = 1, int servers = 2, const Partitioner& partitioner = nullptr)
      : cluster(servers, workers), strategy(cluster.chief(), partitioner), model(seeded()) {}

  HostedModel<Net> seeded() {
    torch::manual_seed(1);
    return strategy.hosted<Net>(std::int64_t{6});
  }

  ServerCluster cluster;
  ParameterServerStrategy strategy;
  Model model;
};

Model alone() {
  torch::manual_seed(1);
  return Model(mirrored<Net>(std::int64_t{6}));
}

void expect_same_bits(const Model& a, const Model& b) {
  const auto mine = a.weights(), theirs = b.weights();
  ASSERT_EQ(mine.tensors.size(), theirs.tensors.size());
  for (const auto& [name, tensor] : mine.tensors) {
    const auto other = *theirs.find(name);
    EXPECT_TRUE(torch::equal(tensor, other)) << name << ", by " << (tensor - other).abs().max().item<double>();
  }
}

void expect_close(const Logs& a, const Logs& b, double tolerance) {
  ASSERT_EQ(a.size(), b.size()) << show(a) << " and " << show(b);
  for (const auto& [name, value] : a) EXPECT_NEAR(value, b.at(name), tolerance) << name;
}

void expect_same_training(const CompileOptions& options, const FitOptions& fit, const Partitioner& partitioner = nullptr) {
  Job job(1, 2, partitioner);
  job.model.compile(options);
  auto single = alone();
  single.compile(options);
  auto theirs = fit;
  theirs.verbose = Verbose::kSilent;
  auto mine = theirs;
  mine.validation_data = kTest;
  theirs.validation_data = more_batches();
  const auto history = job.model.fit(kTrain, mine);
  if (theirs.steps_per_epoch == kUntilDataEnds) theirs.steps_per_epoch.reset();
  const auto expected = single.fit(batches(), theirs);
  ASSERT_EQ(history.logs.size(), expected.logs.size());
  for (std::size_t epoch = 0; epoch < history.logs.size(); ++epoch)
    expect_close(history.logs[epoch], expected.logs[epoch], 1e-6);
  expect_same_bits(job.model, single);
  EXPECT_EQ(job.model.iterations(), single.iterations());
}

TEST(HostedFit, WithOneWorkerTrainsAsOneProcess) {
  auto options = options_of();
  options.pss_evaluation_shards = 3;
  expect_same_training(options, {.epochs = 3, .steps_per_epoch = kSteps});
  options.optimizer = Adam({.learning_rate = 0.01, .global_clipnorm = 0.5});
  expect_same_training(options, {.epochs = 2, .steps_per_epoch = 7, .class_weight = {{0, 2.0}, {2, 0.5}}},
                       FixedShardsPartitioner(2));
}

// One copy of the module, whatever the worker has: see Note [devices of hosted modules].
TEST(HostedFit, AWorkerWithSeveralDevicesComputesOnTheFirst) {
  const ServerCluster cluster(1, 1, {.devices = testing::cpus(2)});
  ParameterServerStrategy strategy(cluster.chief());
  torch::manual_seed(1);
  Model model(strategy.hosted<Net>(std::int64_t{6}));
  auto options = options_of(Adam(0.01));
  options.loss = classes().with_reduction(Reduction::kMeanWithSampleWeight);
  model.compile(options);
  auto single = alone();
  single.compile(options);
  const auto weighted = [] {
    return batches().map([](torch::Tensor x, torch::Tensor y) { return std::make_tuple(x, y, x.select(1, 0).abs() + 0.1); });
  };
  const FitOptions fit{.epochs = 2, .steps_per_epoch = kSteps, .verbose = Verbose::kSilent};
  const auto history = model.fit(weighted, fit), expected = single.fit(weighted(), fit);
  for (std::size_t epoch = 0; epoch < 2; ++epoch) expect_close(history.logs[epoch], expected.logs[epoch], 1e-6);
  expect_same_bits(model, single);
}

TEST(HostedFit, UntilTheDataEndsIsAPass) {
  auto options = options_of();
  options.pss_evaluation_shards = kAutoShards;
  expect_same_training(options, {.epochs = 2, .steps_per_epoch = kUntilDataEnds});
}

TEST(HostedFit, AHostedEmbeddingTrainsAsATableInOneProcess) {
  const ServerCluster cluster(2, 1);
  ParameterServerStrategy strategy(cluster.chief(), FixedShardsPartitioner(3));
  auto hosted = strategy.hosted<Words>(std::int64_t{40}, std::int64_t{2});
  Model model(hosted);
  model.compile({.optimizer = SGD(0.1), .loss = "mse"});
  auto table = mirrored<Words>(std::int64_t{40}, std::int64_t{2});
  {
    const torch::NoGradGuard no_grad;
    const auto begin = hosted.module();
    table->parameters()[0].copy_(begin->table->table()->value());
    table->top->weight.copy_(begin->top->weight);
    table->top->bias.copy_(begin->top->bias);
  }
  Model single(table);
  single.compile({.optimizer = SGD(0.1), .loss = "mse"});
  const auto read = [] {
    const auto ids = (torch::arange(96, torch::kLong).reshape({32, 3}) * 7) % 40;
    return data::Dataset::from_tensor_slices({ids, ids.sum(1).to(torch::kFloat).sin()}).batch(8);
  };
  const auto history = model.fit(read, {.epochs = 2, .steps_per_epoch = 4, .verbose = Verbose::kSilent});
  const auto expected = single.fit(read(), {.epochs = 2, .steps_per_epoch = 4, .verbose = Verbose::kSilent});
  for (std::size_t epoch = 0; epoch < 2; ++epoch) expect_close(history.logs[epoch], expected.logs[epoch], 1e-6);
  EXPECT_TRUE(torch::equal(hosted.module()->table->table()->value(), table->parameters()[0]));
}

TEST(HostedFit, ThreeWorkersLearnFashion) {
  struct Images : torch::nn::Module {
    Images()
        : first(register_module("first", torch::nn::Linear(784, 32))),
          second(register_module("second", torch::nn::Linear(32, 10))) {}
    torch::Tensor forward(const torch::Tensor& x) { return second(torch::relu(first(x.flatten(1)))); }
    torch::nn::Linear first, second;
  };
  const ServerCluster cluster(1, 3);
  ParameterServerStrategy strategy(cluster.chief());
  torch::manual_seed(1);
  Model model(strategy.hosted<Images>());
  model.compile({.optimizer = Adam(2e-3), .loss = classes(), .metrics = {"accuracy"}, .pss_evaluation_shards = kAutoShards});
  const auto history = model.fit(
      DatasetCreator([](const InputContext& context) {
        return data::fashion_mnist("train").take(6000).shard(context.num_input_pipelines, context.input_pipeline_id).batch(50);
      }),
      {.epochs = 3,
       .steps_per_epoch = 120,
       .validation_data = DatasetCreator([](const InputContext&) { return data::fashion_mnist("test").take(1000).batch(50); }),
       .verbose = Verbose::kSilent});
  EXPECT_LT(history.at("loss").back(), history.at("loss").front());
  EXPECT_GT(history.at("val_accuracy").back(), 0.75);
  EXPECT_EQ(model.iterations(), 360);
}

TEST(HostedFit, ExactEvaluationIsThatOfOneProcess) {
  Job job(3);
  auto options = options_of();
  options.metrics.push_back(metrics::SparseCategoricalCrossentropy({.from_logits = true}));
  auto single = alone();
  single.compile(options);
  const auto expected = single.evaluate(more_batches());
  for (const std::int64_t shards : {std::int64_t{1}, std::int64_t{5}, std::int64_t{30}, kAutoShards}) {
    options.pss_evaluation_shards = shards;
    job.model.compile(options);
    expect_close(job.model.evaluate(kTest), expected, 1e-12);
  }
  const auto x = rows_of(kRows);
  expect_close(job.model.evaluate(x, labels_of(x)), single.evaluate(x, labels_of(x)), 1e-12);
}

// What slow data has given, and when enough of it has: see EachShardCountsOnce...
struct Seen {
  std::mutex mu;
  std::condition_variable changed;
  int batches = 0;  // guarded by mu

  static Seen& global() {
    static Seen all;
    return all;
  }
  void add() {
    std::unique_lock lock(mu);
    ++batches;
    changed.notify_all();
    changed.wait_for(lock, std::chrono::milliseconds(2), [] { return false; });
  }
  void wait_for(int count) {
    std::unique_lock lock(mu);
    EXPECT_TRUE(changed.wait_for(lock, std::chrono::seconds(60), [&] { return batches >= count; }));
  }
};

TEST(HostedFit, EachShardCountsOnceWhenAWorkerIsLost) {
  const auto ports = testing::free_ports(4);
  const auto at = [&](std::size_t i) { return str("127.0.0.1:", ports[i]); };
  const ClusterSpec spec({{"chief", {at(0)}}, {"worker", {at(1), at(2)}}, {"ps", {at(3)}}});
  const auto task = [&](const std::string& job, int index) {
    return std::make_shared<SimpleClusterResolver>(spec, SimpleClusterOptions{.task_type = job, .task_id = index});
  };
  const ServerOptions on_cpu{.devices = {"CPU:0"}};
  Server server(task("ps", 0), {}), stays(task("worker", 1), on_cpu);
  auto lost = std::make_unique<Server>(task("worker", 0), on_cpu);
  ParameterServerStrategy strategy(task("chief", 0));
  torch::manual_seed(1);
  Model model(strategy.hosted<Net>(std::int64_t{6}));
  auto options = options_of();
  options.pss_evaluation_shards = 10;
  model.compile(options);
  auto single = alone();
  single.compile(options);
  const std::jthread killer([&] {
    Seen::global().wait_for(7);
    lost.reset();
  });
  const auto logs = model.evaluate([] {
    return more_batches().map([](torch::Tensor x, torch::Tensor y) {
      Seen::global().add();
      return std::make_tuple(x, y);
    });
  });
  expect_close(logs, single.evaluate(more_batches()), 1e-12);
}

TEST(HostedFit, EvaluationOfStepsSeesSoManyBatches) {
  Job job(1);
  auto single = alone();
  job.model.compile(options_of());
  single.compile(options_of());
  expect_close(job.model.evaluate(kTest, {.steps = 3}), single.evaluate(more_batches(), {.steps = 3}), 1e-12);
  // Where the data ends a new pass begins.
  expect_close(job.model.evaluate(kTest, {.steps = 2 * kSteps}), single.evaluate(more_batches()), 1e-12);
}

TEST(HostedFit, TensorsAreSentToTheWorkers) {
  Job job(2);
  job.model.compile(options_of(Adam(0.02)));
  const auto x = rows_of(kRows);
  const auto history =
      job.model.fit(x, labels_of(x), {.epochs = 8, .verbose = Verbose::kSilent, .batch_size = 8, .validation_split = 0.25});
  EXPECT_EQ(job.model.iterations(), 8 * 9);  // 69 rows
  EXPECT_LT(history.at("loss").back(), history.at("loss").front());
  EXPECT_EQ(history.at("val_loss").size(), 8U);
}

TEST(HostedFit, OneBatchTrainsOnAWorkerAndPredictionsAreMadeHere) {
  const testing::LogCapture log;
  Job job(2);
  auto single = alone();
  job.model.compile(options_of());
  single.compile(options_of());
  const auto x = rows_of(8);
  for (int step = 0; step < 3; ++step)
    expect_close(job.model.train_on_batch({x, labels_of(x)}), single.train_on_batch({x, labels_of(x)}), 1e-6);
  EXPECT_NEAR(job.model.last_loss(), single.last_loss(), 1e-6);
  expect_close(job.model.test_on_batch({x, labels_of(x)}), single.test_on_batch({x, labels_of(x)}), 1e-6);
  EXPECT_TRUE(torch::equal(job.model.predict(x), single.predict(x)));
  EXPECT_TRUE(torch::equal(job.model.predict(kTest), single.predict(more_batches())));
  for (const auto& warning : log.warnings()) EXPECT_THAT(warning, ::testing::Not(::testing::HasSubstr("run()"))) << warning;
}

TEST(HostedFit, FunctionsWithoutCapturesGoToWorkers) {
  Job job(1);
  Model model(job.seeded(), [](Net& net, const torch::Tensor& x) { return net.forward(x) * 0.5; });
  auto single = alone();
  const CompileOptions options{
      .optimizer = SGD(0.1),
      .loss = Loss("mine",
                   [](const torch::Tensor& y_true, const torch::Tensor& y_pred) {
                     return torch::one_hot(y_true.flatten(), 3).sub(y_pred).square().sum(1);
                   }),
      .metrics = {Metric("largest", [](const torch::Tensor&, const torch::Tensor& y_pred) { return y_pred.amax(1); })}};
  model.compile(options);
  torch::manual_seed(1);
  Model half(mirrored<Net>(std::int64_t{6}), [](Net& net, const torch::Tensor& x) { return net.forward(x) * 0.5; });
  half.compile(options);
  const FitOptions fit{.epochs = 2, .steps_per_epoch = 5, .verbose = Verbose::kSilent};
  const auto history = model.fit(kTrain, fit), expected = half.fit(batches(), fit);
  for (std::size_t epoch = 0; epoch < 2; ++epoch) expect_close(history.logs[epoch], expected.logs[epoch], 1e-6);
  expect_same_bits(model, half);
}

TEST(HostedFit, WeightsGoToAndComeFromTheServers) {
  Job job(1);
  const testing::ScratchFolder folder;
  auto single = alone();
  single.compile(options_of());
  single.fit(batches(), {.steps_per_epoch = 4, .verbose = Verbose::kSilent});
  job.model.set_weights(single.weights());  // before there are variables
  job.model.compile(options_of());
  expect_same_bits(job.model, single);
  job.model.fit(kTrain, {.steps_per_epoch = 4, .verbose = Verbose::kSilent});
  job.model.save_weights(folder / "after.safetensors");
  job.model.set_weights(single.weights());
  expect_same_bits(job.model, single);
  job.model.load_weights(folder / "after.safetensors");
  single.load_weights(folder / "after.safetensors");
  const auto x = rows_of(8);
  expect_close(job.model.test_on_batch({x, labels_of(x)}), single.test_on_batch({x, labels_of(x)}), 1e-6);
}

}  // namespace
}  // namespace lockstep

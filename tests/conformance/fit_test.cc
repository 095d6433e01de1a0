#include "tests/conformance/testing.h"

// Keras's fit and the metrics of v1, under strategies.

namespace lockstep::testing {
namespace {

using data::Dataset;

// y = w x, one weight of zero.
struct Slope : torch::nn::Module {
  Slope() : weight(register_parameter("weight", torch::zeros({1}))) {}
  torch::Tensor forward(const torch::Tensor& x) { return x * weight; }
  torch::Tensor weight;
};

Dataset slopes(std::int64_t batches) {
  const auto x = torch::arange(batches * 10, torch::kFloat).reshape({-1, 1}) / (static_cast<double>(batches) * 10);
  return Dataset::from_tensor_slices({x, x * 2}).batch(10);
}

TEST(Fit, TakesADistributedDatasetWithSteps) {
  MirroredStrategy strategy(cpus(2));
  const auto scope = strategy.scope();
  Model model(mirrored<Slope>());
  model.compile({.optimizer = SGD(0.1), .loss = "mse"});
  const auto train = strategy.experimental_distribute_dataset(slopes(20));
  const auto test = strategy.experimental_distribute_dataset(slopes(10));
  const auto history = model.fit(
      train,
      {.epochs = 2, .steps_per_epoch = 20, .validation_data = test, .validation_steps = 10, .verbose = Verbose::kSilent});
  EXPECT_LT(history.at("loss")[1], history.at("loss")[0]);
  EXPECT_EQ(history.at("val_loss").size(), 2U);
  EXPECT_EQ(code_of([&] { model.fit(train, {.verbose = Verbose::kSilent}); }), ErrorCode::kInvalidArgument);
}

// Gradients of 1 each: the first is dropped, the second doubled, after the sum over the replicas.
TEST(Fit, GradientsCanBeChangedBeforeTheStep) {
  struct Numbers : torch::nn::Module {
    Numbers() : first(register_parameter("first", torch::zeros({}))), second(register_parameter("second", torch::zeros({}))) {}
    torch::Tensor first, second;
  };
  for (const int replicas : {1, 2, 3}) {
    MirroredStrategy strategy(cpus(replicas));
    const auto scope = strategy.scope();
    const auto model = mirrored<Numbers>();
    Optimizer optimizer(model.replicas(), SGD(1.0));
    strategy.run([&] {
      ((model->first + model->second) / replicas).backward();
      optimizer.synchronize();
      model->first.mutable_grad() = torch::zeros({});
      model->second.mutable_grad() = model->second.grad() * 2;
      optimizer.step();
    });
    EXPECT_EQ(model->first.item<float>(), 0);
    EXPECT_EQ(model->second.item<float>(), -2);
  }
}

TEST(Fit, LossReductionsGiveTheHistoryOfOneProcess) {
  for (const auto reduction : {Reduction::kSumOverBatchSize, Reduction::kMean, Reduction::kSum}) {
    std::vector<std::vector<double>> losses;
    for (const int replicas : {1, 2}) {
      MirroredStrategy strategy(cpus(replicas));
      const auto scope = strategy.scope();
      Model model(mirrored<Slope>());
      model.compile({.optimizer = SGD(0.001), .loss = mean_squared_error({.reduction = reduction})});
      losses.push_back(model.fit(slopes(7), {.epochs = 3, .verbose = Verbose::kSilent}).at("loss"));
    }
    for (std::size_t e = 0; e < 3; ++e) EXPECT_NEAR(losses[0][e], losses[1][e], 1e-5 * losses[0][e]) << reduction;
  }
}

// The metric's result after each of the first four batches, on 1, 2 and 3 replicas: `update` in every replica.
void expect_results(const Dataset& batches, const std::function<Metric()>& make,
                    const std::function<void(Metric&, const data::Element&)>& update, const std::vector<double>& expected) {
  for (const int replicas : {1, 2, 3}) {
    MirroredStrategy strategy(cpus(replicas));
    const auto scope = strategy.scope();
    auto metric = make();
    std::size_t step = 0;
    for (auto batch : strategy.experimental_distribute_dataset(batches)) {
      strategy.run([&](const data::Element& part) { update(metric, part); }, batch);
      EXPECT_NEAR(metric.result().item<double>(), expected[step], 1e-6) << replicas << " replicas, batch " << step;
      if (++step == expected.size()) break;
    }
  }
}

void update_pair(Metric& metric, const data::Element& part) { metric.update_state(part[0], part[1]); }

TEST(V1Metrics, MeanOfARange) {
  expect_results(
      Dataset::range(1000).map([](const torch::Tensor& x) { return x.to(torch::kFloat); }).batch(4, true),
      [] { return metrics::Mean(); }, [](Metric& metric, const data::Element& part) { metric.update_state(part[0]); },
      {1.5, 3.5, 5.5, 7.5});
}

TEST(V1Metrics, AccuracyOfLabelsAndPredictions) {
  expect_results(Dataset::range(1000).map([](const torch::Tensor& x) { return std::pair(x % 5, x % 3); }).batch(4, true),
                 [] { return metrics::Accuracy(); }, update_pair, {3.0 / 4, 3.0 / 8, 3.0 / 12, 4.0 / 16});
}

Dataset labelled(const torch::Tensor& predictions) {
  return Dataset::from_tensor_slices({torch::tensor({1.0, 0.0, 1.0, 0.0}), predictions}).repeat().batch(3, true);
}

TEST(V1Metrics, CountsOfTheConfusionMatrix) {
  const auto both = labelled(torch::tensor({1.0, 1.0, 0.0, 0.0}));
  expect_results(both, [] { return metrics::FalseNegatives(); }, update_pair, {1, 1, 2, 3});
  expect_results(both, [] { return metrics::TrueNegatives(); }, update_pair, {0, 1, 2, 3});
  expect_results(both, [] { return metrics::FalsePositives(); }, update_pair, {1, 2, 2, 3});
  expect_results(both, [] { return metrics::TruePositives(); }, update_pair, {1, 2, 3, 3});
}

TEST(V1Metrics, AreaUnderTheCurve) {
  expect_results(labelled(torch::tensor({1.0, 0.75, 0.25, 0.0})), [] { return metrics::AUC({.num_thresholds = 8}); },
                 update_pair, {0.5, 7.0 / 9, 0.8, 0.75});
}

}  // namespace
}  // namespace lockstep::testing

#include <tuple>

#include "tests/conformance/testing.h"

// Loops over distributed data as users write them.

namespace lockstep::testing {
namespace {

using data::Dataset;

class TrainingLoop : public ::testing::Test {
 protected:
  MirroredStrategy strategy{cpus(2)};
  Scope scope = strategy.scope();

  DistributedDataset batches_of(const at::Tensor& rows, std::int64_t batch) {
    return strategy.experimental_distribute_dataset(Dataset::from_tensor_slices(rows).batch(batch));
  }
};

TEST_F(TrainingLoop, AddsUpOverAllStepsAndReplicas) {
  double sum = 0;
  for (const auto& batch : strategy.experimental_distribute_dataset(Dataset::range(10).batch(2)))
    sum += strategy.reduce("sum", strategy.run([](at::Tensor y) { return y * y; }, batch), 0).item<double>();
  EXPECT_EQ(sum, 285);
}

TEST_F(TrainingLoop, AMeanOverAPartialBatchWeighsElements) {
  const auto mean_of_first = [&](const at::Tensor& rows) {
    const auto batch = batches_of(rows, 4).make_iterator().get_next();
    return floats(strategy.reduce("mean", strategy.run([](at::Tensor x) { return x; }, batch), 0));
  };
  EXPECT_THAT(mean_of_first(vec({5, 6, 7})), ElementsAre(6));
  EXPECT_THAT(mean_of_first(at::ones({3, 2})), ElementsAre(1, 1));
}

TEST_F(TrainingLoop, ReplicasWithoutRowsGiveResultsWithoutRows) {
  const auto batch = batches_of(vec({5}), 2).make_iterator().get_next();
  const auto mixed = strategy.run([](at::Tensor x) { return std::tuple(at::zeros({3}), x * x); }, batch);
  for (const auto& [zeros, squares] : mixed) EXPECT_THAT(floats(zeros), ElementsAre(0, 0, 0));
  EXPECT_THAT(floats(std::get<1>(mixed[0])), ElementsAre(25));
  EXPECT_THAT(floats(std::get<1>(mixed[1])), ElementsAre());

  const auto integers = batches_of(ints_vec({5}), 2).make_iterator().get_next();
  const auto doubled = strategy.run([](at::Tensor x) { return x + x; }, integers);
  EXPECT_THAT(ints(doubled[0]), ElementsAre(10));
  EXPECT_THAT(ints(doubled[1]), ElementsAre());
  EXPECT_EQ(doubled[1].scalar_type(), at::kLong);
}

TEST_F(TrainingLoop, EndsWithOutOfRange) {
  Variable total(0.0, {.aggregation = Aggregation::kSum});
  auto iterator = batches_of(vec({5, 6, 7, 8}), 2).make_iterator();
  EXPECT_EQ(code_of([&] {
              for (int step = 0; step < 100; ++step)
                strategy.run([&](at::Tensor x) { total.assign_add(x.sum()); }, iterator.get_next());
            }),
            ErrorCode::kOutOfRange);
  EXPECT_THAT(floats(total.read_value()), ElementsAre(26));
}

TEST_F(TrainingLoop, KeepsStateBetweenSteps) {
  const auto distributed = batches_of(vec({5, 6, 7, 8}), 2);
  double product = 2;
  int count = 0;
  for (const auto& batch : distributed) {
    product *= strategy.reduce("mean", strategy.run([](at::Tensor x) { return x; }, batch), 0).item<double>();
    ++count;
  }
  EXPECT_EQ(count, 2);
  EXPECT_EQ(product, 82.5);

  Variable counted(1.0, {.aggregation = Aggregation::kOnlyFirstReplica});
  for (const auto& batch : distributed) strategy.run([&](at::Tensor) { counted.assign_add(1.0); }, batch);
  EXPECT_THAT(components(counted), ElementsAre(3, 3));
}

TEST_F(TrainingLoop, TakesGradientsOfTheReplicasRows) {
  std::vector<Floats> gradients;
  for (const auto& batch : batches_of(vec({5, 6, 7, 8}), 2)) {
    gradients.push_back(floats(strategy.run(
        [](at::Tensor rows) {
          const auto x = rows.clone().set_requires_grad(true);
          return torch::autograd::grad({(x * x).sum()}, {x})[0];
        },
        batch)));
  }
  EXPECT_THAT(gradients, ElementsAre(Floats{10, 12}, Floats{14, 16}));
}

// A mean over everything that all replicas have seen: exact, since each keeps its own total and count.
class MeanMetric {
 public:
  void update(const at::Tensor& values) {
    total_.assign_add(values.sum());
    count_.assign_add(scalar(static_cast<double>(values.numel())));
  }
  double result() const { return (total_.read_value() / count_.read_value()).item<double>(); }

 private:
  static Variable counter() { return Variable(0.0, {.synchronization = Sync::kOnRead, .aggregation = Aggregation::kSum}); }
  Variable total_ = counter();
  Variable count_ = counter();
};

TEST_F(TrainingLoop, MetricsAreUpdatedInEveryReplica) {
  MeanMetric first;
  MeanMetric second;
  strategy.run([&] {
    first.update(scalar(5));
    second.update(scalar(5));
  });
  EXPECT_EQ(first.result(), 5);
  EXPECT_EQ(second.result(), 5);
}

TEST_F(TrainingLoop, MetricsCoverTheWholeDataset) {
  MeanMetric mean;
  for (const auto& batch : strategy.experimental_distribute_dataset(Dataset::range(10).batch(2)))
    strategy.run([&](at::Tensor x) { mean.update(x.to(at::kFloat)); }, batch);
  EXPECT_EQ(mean.result(), 4.5);
}

}  // namespace
}  // namespace lockstep::testing

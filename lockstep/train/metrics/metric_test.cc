#include "lockstep/train/metrics/metric.h"

#include <ATen/ATen.h>

#include <cmath>

#include "lockstep/device/devices.h"
#include "lockstep/replica/replica_context.h"
#include "lockstep/strategy/mirrored_strategy.h"
#include "lockstep/train/losses/losses.h"
#include "lockstep/train/metrics/metrics.h"
#include "lockstep/train/metrics/names.h"
#include "tests/support/testing.h"
#include "tests/support/worker_threads.h"

// Values are compared with Keras's in tests/oracle (metrics.json); here is where states are kept and how they are read.

namespace lockstep {
namespace {

using testing::cpus;
using testing::ThrowsCode;

double value(const Metric& metric) { return metric.result().item<double>(); }

// Rows of labels and scores of five classes.
struct Data {
  at::Tensor labels = at::randint(5, {11});
  at::Tensor scores = at::rand({11, 5});
};

TEST(Metric, IsKnownByKerasNamesAndTakesTheNameGiven) {
  EXPECT_EQ(Metric("AUC").name(), "AUC");
  EXPECT_EQ(metrics::AUC().name(), "auc");
  EXPECT_EQ(metrics::AUC({.name = "area"}).name(), "area");
  for (const auto& name : metrics::metric_names()) EXPECT_EQ(Metric(name).name(), name);
  EXPECT_THAT([] { Metric("acuracy"); },
              ThrowsCode(ErrorCode::kInvalidArgument, "'acuracy' is not a metric", "did you mean 'accuracy'?"));
}

TEST(Metric, AccuracyFollowsTheShapes) {
  Metric sparse = "accuracy";
  sparse.update_state(at::tensor({1, 0}), at::tensor({0.1, 0.9, 0.2, 0.8}).reshape({2, 2}));
  EXPECT_EQ(value(sparse), 0.5);
  Metric categorical = "acc";
  categorical.update_state(at::tensor({0.0, 1.0, 1.0, 0.0}).reshape({2, 2}), at::tensor({0.1, 0.9, 0.2, 0.8}).reshape({2, 2}));
  EXPECT_EQ(value(categorical), 0.5);
  Metric binary = "accuracy";
  binary.update_state(at::tensor({1, 0, 1}), at::tensor({0.9, 0.7, 0.6}).reshape({3, 1}));
  EXPECT_NEAR(value(binary), 2.0 / 3, 1e-12);
  Metric column = "accuracy";
  column.update_state(at::tensor({1, 0}).reshape({2, 1}), at::tensor({0.1, 0.9, 0.2, 0.8}).reshape({2, 2}));
  EXPECT_EQ(value(column), 0.5);
}

TEST(Metric, CopiesShareTheStateAndRenamedOnesDoNot) {
  auto metric = metrics::Mean();
  auto copy = metric;
  auto other = metric.renamed("other");
  copy.update_state(at::tensor({1.0, 3.0}));
  EXPECT_EQ(value(metric), 2);
  EXPECT_EQ(value(other), 0);
  EXPECT_EQ(other.name(), "other");
}

TEST(Metric, CountsExactlyBeyondFloat32) {
  auto metric = metrics::Sum();
  metric.update_state(at::scalar_tensor(16'777'216.0, at::kDouble));
  for (int i = 0; i < 3; ++i) metric.update_state(at::ones({1}));
  EXPECT_EQ(value(metric), 16'777'219.0);
}

TEST(Metric, UnevenAndEmptyPartsCountAsTheWhole) {
  const Data data;
  for (const auto* name : {"accuracy", "sparse_categorical_crossentropy", "sparse_top_k_categorical_accuracy"}) {
    Metric whole = name;
    whole.update_state(data.labels, data.scores);
    MirroredStrategy strategy(cpus(3));
    const auto scope = strategy.scope();
    Metric parts = name;
    const std::vector<std::int64_t> ends = {0, 8, 8, 11};  // 8, 0 and 3 rows
    strategy.run([&](ReplicaContext& context) {
      const auto r = static_cast<std::size_t>(context.local_replica_id());
      parts.update_state(data.labels.slice(0, ends[r], ends[r + 1]), data.scores.slice(0, ends[r], ends[r + 1]));
    });
    EXPECT_NEAR(value(parts), value(whole), 1e-7) << name;
    EXPECT_EQ(parts.state()[1].item<double>(), 11) << name;
  }
}

TEST(Metric, ReplicasKeepTheirOwnPartsAndReadThem) {
  MirroredStrategy strategy(cpus(2));
  auto metric = metrics::Mean();  // made outside the scope
  const auto inside = strategy.run([&](ReplicaContext& context) {
    if (context.local_replica_id() == 1) metric.update_state(at::tensor({4.0, 8.0}));
    return metric.result().item<double>();
  });
  EXPECT_EQ(inside[0], 0);
  EXPECT_EQ(inside[1], 6);
  metric.update_state(at::tensor({0.0}));  // outside
  EXPECT_EQ(value(metric), 4);
  EXPECT_EQ(metric.local_result().item<double>(), 4);
  EXPECT_TRUE(metric.replica_state(0).empty());
  EXPECT_EQ(metric.replica_state(1)[0].item<double>(), 12);
  strategy.run([&](ReplicaContext& context) {
    if (context.local_replica_id() == 1) metric.reset_state();
  });
  EXPECT_EQ(value(metric), 0);
  EXPECT_EQ(metric.state()[1].item<double>(), 1);
}

TEST(Metric, BelongsToOneStrategyUntilItIsReset) {
  auto metric = metrics::Mean();
  MirroredStrategy two(cpus(2));
  MirroredStrategy three(cpus(3));
  const auto count = [&] { metric.update_state(at::tensor({1.0})); };
  two.run(count);
  EXPECT_THAT([&] { three.run(count); }, ThrowsCode(ErrorCode::kFailedPrecondition, "'mean'", "reset_state()"));
  EXPECT_EQ(metric.state()[1].item<double>(), 2);
  metric.reset_state();
  three.run(count);
  EXPECT_EQ(metric.state()[1].item<double>(), 3);
}

TEST(Metric, StateGoesToACheckpointAndBack) {
  const Data data;
  const auto one_hot = at::one_hot(data.labels, 5);
  for (const auto& make : {+[] { return metrics::F1Score(); }, +[] { return metrics::AUC({.multi_label = true}); },
                           +[] { return metrics::CategoricalAccuracy(); }}) {
    MirroredStrategy two(cpus(2));
    auto saved = make();
    two.run([&] { saved.update_state(one_hot, data.scores); });
    MirroredStrategy three(cpus(3));
    const auto scope = three.scope();
    auto restored = make();
    restored.set_state(saved.state());
    EXPECT_TRUE(restored.result().equal(saved.result()));
    three.run([&] { restored.update_state(one_hot, data.scores); });
    saved.reset_state();
    EXPECT_EQ(saved.state()[0].sum().item<double>(), 0);
    EXPECT_EQ(saved.result().sizes(), restored.result().sizes());  // the shape stays known
  }
  auto mean = metrics::Mean();
  EXPECT_THAT([&] { mean.set_state({at::zeros({3}, at::kDouble)}); }, ThrowsCode(ErrorCode::kInvalidArgument, "'mean'"));
}

TEST(Metric, AResultOfNothingIsZeroOrAnError) {
  EXPECT_EQ(value(Metric("accuracy")), 0);
  EXPECT_EQ(value(metrics::AUC()), 0);
  EXPECT_THAT([] { metrics::R2Score().result(); }, ThrowsCode(ErrorCode::kFailedPrecondition, "'r2_score'", "update_state()"));
  EXPECT_TRUE(metrics::F1Score().state().empty());
}

TEST(Metric, DataThatDoesNotFitIsNamed) {
  auto mean = metrics::Mean();
  EXPECT_THAT([&] { mean.update_state(at::ones({2}), at::ones({2}), at::ones({2})); },
              ThrowsCode(ErrorCode::kInvalidArgument, "values"));
  Metric accuracy = "accuracy";
  EXPECT_THAT([&] { accuracy.update_state(at::ones({2})); }, ThrowsCode(ErrorCode::kInvalidArgument, "y_true, y_pred"));
  EXPECT_THAT(
      [&] {
        accuracy.update_state(at::zeros({3}), at::zeros({2, 4}));
      },
      ThrowsCode(ErrorCode::kInvalidArgument, "[3]"));
  auto precision = metrics::Precision({.top_k = 9});
  EXPECT_THAT(
      [&] {
        precision.update_state(at::zeros({2, 4}), at::zeros({2, 4}));
      },
      ThrowsCode(ErrorCode::kInvalidArgument, "top_k is 9"));
}

TEST(Metric, PredictionsThatAreNotNumbersDoNotHurt) {
  auto auc = metrics::AUC();
  auc.update_state(at::tensor({1.0, 0.0}), at::full({2}, std::nan("")));
  EXPECT_EQ(auc.state()[0].sum().item<double>(), 0);
}

// The largest error so far cannot be a sum; how often errors were large can.
class LargeErrors final : public MetricRule {
 public:
  State zeros(const at::Tensor&, const at::Tensor&) const override { return {at::zeros({}, at::kDouble)}; }
  void add(State& state, const metrics::MetricBatch& batch) const override {
    state[0].add_(((batch.y_true - batch.y_pred).abs() > 1).sum(at::kDouble));
  }
  at::Tensor result(const State& state) const override { return state[0]; }
};

TEST(Metric, OfOnesOwn) {
  Metric large("large_errors", std::make_shared<LargeErrors>());
  MirroredStrategy strategy(cpus(2));
  strategy.run([&] { large.update_state(at::tensor({0.0, 0.0, 0.0}), at::tensor({2.0, 0.5, -3.0})); });
  EXPECT_EQ(value(large), 4);
  Metric twice("twice", [](const at::Tensor& y_true, const at::Tensor&) { return 2 * y_true; });
  twice.update_state(at::tensor({1.0, 2.0}), at::zeros({2}));
  EXPECT_EQ(value(twice), 3);
  Metric loss = mean_squared_error();
  loss.update_state(at::zeros({4, 1}), at::full({4, 1}, 3.0));
  EXPECT_EQ(value(loss), 9);
  EXPECT_EQ(loss.name(), "mean_squared_error");
  Metric nothing("nothing", [](const at::Tensor&, const at::Tensor&) { return at::Tensor(); });
  Metric many("many", [](const at::Tensor& y_true, const at::Tensor&) { return y_true.repeat({3}); });
  EXPECT_THAT([&] { nothing.update_state(at::zeros({2}), at::zeros({2})); },
              ThrowsCode(ErrorCode::kInvalidArgument, "'nothing' gave an undefined tensor"));
  EXPECT_THAT([&] { many.update_state(at::zeros({2}), at::zeros({2})); },
              ThrowsCode(ErrorCode::kInvalidArgument, "'many' gave shape [6] for 2 examples"));
}

// Two workers, with two replicas and one; the second has counted nothing, and does not know how many classes there are.
TEST(Metric, IsSummedOverWorkers) {
  const Data data;
  const auto one_hot = at::one_hot(data.labels, 5);
  Metric whole = metrics::F1Score();
  for (int i = 0; i < 2; ++i) whole.update_state(one_hot, data.scores);
  const auto wanted = whole.result();
  testing::on_workers({2, 1}, [&](WorkerGroup& workers) {
    const int rank = workers.layout().rank;
    ReplicaSetOptions options;
    options.workers = std::shared_ptr<WorkerGroup>(std::shared_ptr<void>(), &workers);
    std::vector<LogicalDevice> devices(rank == 0 ? 2 : 1, find_logical_device("CPU:0"));
    const auto replicas = std::make_shared<ReplicaSet>(nullptr, devices, options);
    const internal::ModeGuard scope({replicas.get(), nullptr});
    Metric score = metrics::F1Score();
    Metric accuracy = "accuracy";
    replicas->run([&](ReplicaContext&) {
      if (rank == 0) score.update_state(one_hot, data.scores);
      accuracy.update_state(at::tensor({1.0}), at::full({1, 1}, rank == 0 ? 0.9 : 0.1));
    });
    EXPECT_TRUE(score.result().equal(wanted));
    EXPECT_NEAR(value(accuracy), 2.0 / 3, 1e-12);
    EXPECT_EQ(accuracy.local_result().item<double>(), rank == 0 ? 1 : 0);
    const auto state = accuracy.state();
    accuracy.set_state(state);
    EXPECT_NEAR(value(accuracy), 2.0 / 3, 1e-12);
    replicas->retire();
  });
}

}  // namespace
}  // namespace lockstep

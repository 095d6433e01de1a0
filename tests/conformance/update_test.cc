#include "tests/conformance/testing.h"

// StrategyExtended::update: a function for every component of a variable; and moving averages, written with it.

namespace lockstep::testing {
namespace {

class Update : public ::testing::Test {
 protected:
  MirroredStrategy strategy{cpus(2)};
  Scope scope = strategy.scope();
};

TEST(UpdateNonSlot, CallsItsFunctionOncePerDevice) {
  OneDeviceStrategy strategy("CPU:0");
  auto& extended = strategy.extended();
  int calls = 0;
  extended.update_non_slot(extended.non_slot_devices({}), [&] { ++calls; });
  EXPECT_EQ(calls, 1);
}

TEST_F(Update, InsideReplicasHappensOnceAndInOrder) {
  Variable variable(5.0);
  const auto assign = [&](at::Tensor, double value) { variable.assign(value); };
  const auto read = strategy.run([&] {
    strategy.extended().update(variable, assign, 2.0);
    strategy.extended().update(variable, assign, 1.0);
    return variable.read_value();
  });
  EXPECT_THAT(floats(read), ElementsAre(1, 1));
  EXPECT_THAT(components(variable), ElementsAre(1, 1));
}

TEST_F(Update, GivesEveryComponentItsPartOfADistributedValue) {
  const auto values = scalars({1, 2});
  for (const auto synchronization : {Sync::kOnRead, Sync::kOnWrite}) {
    Variable variable(0.0, {.synchronization = synchronization});
    auto& extended = strategy.extended();
    extended.update(
        variable, [&](at::Tensor, at::Tensor value) { variable.assign(value); }, values);
    EXPECT_THAT(components(variable), ElementsAre(1, 2)) << synchronization;
    extended.update(
        variable, [&](at::Tensor, at::Tensor value) { variable.assign_add(value); }, values);
    EXPECT_THAT(components(variable), ElementsAre(2, 4)) << synchronization;
    extended.update(
        variable, [&](at::Tensor, at::Tensor value) { variable.assign_sub(value); }, values);
    EXPECT_THAT(components(variable), ElementsAre(1, 2)) << synchronization;
    extended.update(variable, [&](at::Tensor) { variable.assign_add(variable.value() + variable.read_value()); });
    EXPECT_THAT(components(variable), ElementsAre(3, 6)) << synchronization;
  }
}

TEST_F(Update, ResultsAreMirrored) {
  const Variable variable(3.0);
  const auto results = strategy.extended().update(variable, [](at::Tensor component) { return component + 1; });
  static_assert(std::is_same_v<decltype(results), const Mirrored<at::Tensor>>);
  EXPECT_THAT(floats(results), ElementsAre(4, 4));
}

// variable := decay * variable + (1 - decay) * value, with one value for all replicas.
void assign_moving_average(Variable& variable, const at::Tensor& value, double decay) {
  const auto update = [&](Strategy& strategy, const at::Tensor& mean) {
    strategy.extended().update(variable, [&](at::Tensor component) { variable.assign_sub((component - mean) * (1 - decay)); });
  };
  ReplicaContext* context = get_replica_context();
  if (context == nullptr) return update(get_strategy(), value);
  context->merge_call(
      [&](Strategy& strategy, const PerReplica<at::Tensor>& values) { update(strategy, strategy.reduce("mean", values)); },
      value);
}

// The same from zero, corrected for the zeros it began with.
class DebiasedAverage {
 public:
  explicit DebiasedAverage(std::int64_t size) : biased_(at::zeros({size})) {}

  at::Tensor add(const at::Tensor& value, double decay) {
    assign_moving_average(biased_, value, decay);
    weight_ = decay * weight_ + (1 - decay);
    return biased_.read_value() / weight_;
  }

 private:
  Variable biased_;
  double weight_ = 0;
};

TEST_F(Update, MovingAveragesInReplicasTakeTheMean) {
  Variable variable(vec({10, 11}));
  strategy.run([&](ReplicaContext& context) {
    const double id = context.replica_id_in_sync_group();
    assign_moving_average(variable, vec({1 + id, 2 - id}), .25);
  });
  EXPECT_THAT(components(variable), ElementsAre(3.625, 3.875, 3.625, 3.875));
}

TEST_F(Update, MovingAveragesAcrossReplicasReachEveryComponent) {
  Variable variable(vec({10, 11}));
  assign_moving_average(variable, vec({1, 2}), .25);
  EXPECT_THAT(components(variable), ElementsAre(3.25, 4.25, 3.25, 4.25));
  assign_moving_average(variable, vec({1, 2}), .25);
  EXPECT_THAT(components(variable), ElementsAre(1.5625, 2.5625, 1.5625, 2.5625));
}

TEST_F(Update, MovingAveragesCanBeCorrectedForTheirZeros) {
  DebiasedAverage corrected(2);
  EXPECT_THAT(floats(corrected.add(vec({2, 4}), .25)), ElementsAre(2, 4));
  Variable variable(vec({0, 0}));
  assign_moving_average(variable, vec({2, 4}), .25);
  EXPECT_THAT(components(variable), ElementsAre(1.5, 3, 1.5, 3));
}

}  // namespace
}  // namespace lockstep::testing

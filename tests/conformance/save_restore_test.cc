#include <thread>

#include "tests/conformance/testing.h"

// The one value that a checkpoint keeps of a variable, and what restoring it does, whatever the number of replicas.

namespace lockstep::testing {
namespace {

class SaveAndRestore : public ::testing::Test {
 protected:
  MirroredStrategy strategy{cpus(2)};
  Scope scope = strategy.scope();

  static Variable on_read(Aggregation aggregation) {
    return Variable(0.0, {.synchronization = Sync::kOnRead, .aggregation = aggregation});
  }
  static at::Tensor saved(Variable variable, const Floats& components) {
    set_components(variable, components);
    return variable.saved_value();
  }
  static Floats restored(Variable variable, const at::Tensor& value) {
    variable.restore(value);
    return components(variable);
  }
  // Made outside every scope: belongs to no strategy.
  static Variable plain(double value) {
    std::optional<Variable> variable;
    std::jthread([&] { variable.emplace(value); }).join();
    return *variable;
  }
};

TEST_F(SaveAndRestore, AMirroredVariableSavesItsFirstComponentAndRestoresAll) {
  Variable variable(0.0);
  const auto value = saved(variable, {3, 4});
  EXPECT_THAT(floats(value), ElementsAre(3));
  set_components(variable, {5, 6});
  EXPECT_THAT(restored(variable, value), ElementsAre(3, 3));
  EXPECT_THAT(restored(plain(0), value), ElementsAre(3));
}

TEST_F(SaveAndRestore, AMirroredVariableComesBackWhateverItsAggregation) {
  for (const auto aggregation : kAllAggregations) {
    Variable variable(0.0, {.aggregation = aggregation});
    variable.assign(2.0);
    const auto value = variable.saved_value();
    variable.assign(1.0);
    EXPECT_THAT(restored(variable, value), ElementsAre(2, 2)) << aggregation;
    EXPECT_THAT(floats(variable.read_value()), ElementsAre(2)) << aggregation;
  }
}

TEST_F(SaveAndRestore, ASumIsSavedWholeAndRestoredInParts) {
  const auto variable = on_read(Aggregation::kSum);
  for (const auto& values : {Floats{3, 4}, Floats{4, 3}}) {
    const auto value = saved(variable, values);
    EXPECT_THAT(floats(value), ElementsAre(7));
    EXPECT_THAT(restored(variable, value), ElementsAre(3.5, 3.5));
  }
}

TEST_F(SaveAndRestore, AMeanIsSavedAndRestoredAsItIs) {
  const auto variable = on_read(Aggregation::kMean);
  for (const auto& values : {Floats{3, 4}, Floats{4, 3}}) {
    const auto value = saved(variable, values);
    EXPECT_THAT(floats(value), ElementsAre(3.5));
    EXPECT_THAT(restored(variable, value), ElementsAre(3.5, 3.5));
  }
}

TEST_F(SaveAndRestore, AnAggregateRestoresIntoAPlainVariable) {
  EXPECT_THAT(restored(plain(0), saved(on_read(Aggregation::kSum), {1.5, 2})), ElementsAre(3.5));
  EXPECT_THAT(restored(plain(0), saved(on_read(Aggregation::kMean), {3, 4})), ElementsAre(3.5));
}

TEST_F(SaveAndRestore, APlainValueRestoresIntoAnAggregate) {
  for (const double value : {3.5, 2.0}) {
    const auto saved_plain = plain(value).saved_value();
    EXPECT_THAT(restored(on_read(Aggregation::kSum), saved_plain), ElementsAre(value / 2, value / 2));
    EXPECT_THAT(restored(on_read(Aggregation::kMean), saved_plain), ElementsAre(value, value));
  }
}

}  // namespace
}  // namespace lockstep::testing

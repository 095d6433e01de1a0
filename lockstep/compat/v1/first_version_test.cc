#include "lockstep/compat/v1/first_version.h"

#include <ATen/ATen.h>

#include <type_traits>

#include "lockstep/compat/v1/mirrored_strategy.h"
#include "lockstep/data/numpy.h"
#include "lockstep/strategy/one_device_strategy.h"
#include "lockstep/strategy/strategy_extended.h"
#include "tests/support/data_testing.h"
#include "tests/support/scratch_folder.h"

// The first version's MirroredStrategy is today's, under its older names.

namespace lockstep::compat::v1 {
namespace {

using data::Bytes;
using data::Component;
using data::Dataset;
using data::Element;
using data::testing::Ints;
using data::testing::ints;
using data::testing::values;
using lockstep::testing::cpus;
using lockstep::testing::ScratchFolder;
using lockstep::testing::ThrowsCode;
using ::testing::ElementsAre;

// A braced list of arrays could be a tuple or a list.
template <typename S>
concept TakesBraces = requires(S& strategy, at::Tensor array) {
  strategy.experimental_make_numpy_dataset({array, array});
};

static_assert(!std::is_copy_constructible_v<MirroredStrategy> && !std::is_copy_assignable_v<MirroredStrategy>);
static_assert(!std::is_move_constructible_v<MirroredStrategy>);
static_assert(std::is_base_of_v<lockstep::MirroredStrategy, MirroredStrategy>);
static_assert(TakesBraces<lockstep::MirroredStrategy> && !TakesBraces<MirroredStrategy>);

PerReplica<at::Tensor> pairs() { return PerReplica<at::Tensor>({at::tensor({0.0, 0.0}), at::tensor({1.0, 2.0})}); }

TEST(FirstVersionStrategy, IsAStrategyOfToday) {
  MirroredStrategy strategy(cpus(2));
  EXPECT_EQ(strategy.num_replicas_in_sync(), 2);
  EXPECT_EQ(strategy.extended().worker_devices().size(), 2);
  const auto scope = strategy.scope();
  EXPECT_EQ(&get_strategy(), &strategy);
  Variable variable(1.0);
  EXPECT_EQ(variable.size(), 2);
  variable.assign_add(2.0);
  const auto values = strategy.run([&] { return variable.value().item<double>(); });
  EXPECT_THAT(values.values(), ElementsAre(3, 3));
}

TEST(FirstVersionStrategy, ReducesOverReplicasUnlessAnAxisIsGiven) {
  MirroredStrategy strategy(cpus(2));
  EXPECT_TRUE(strategy.reduce(ReduceOp::kSum, pairs()).equal(at::tensor({1.0, 2.0})));
  EXPECT_TRUE(strategy.reduce("MEAN", pairs()).equal(at::tensor({0.5, 1.0})));
  EXPECT_EQ(strategy.reduce("sum", pairs(), 0).item<double>(), 3);
}

TEST(FirstVersionStrategy, ReducesAsItsCrossDeviceOpsSay) {
  struct Last : CrossDeviceOps {
    at::Tensor reduce(ReduceOp, std::span<const at::Tensor> values) const override { return values.back(); }
    std::string explain(const std::vector<std::string>&) const override { return "the last replica's value"; }
  };
  MirroredStrategy strategy(cpus(2), std::make_shared<Last>());
  EXPECT_TRUE(strategy.reduce("sum", pairs()).equal(at::tensor({1.0, 2.0})));
}

TEST(FirstVersionStrategy, HasOlderNamesOfRunAndLocalResults) {
  MirroredStrategy strategy(cpus(2));
  const auto results = strategy.experimental_run_v2([](at::Tensor x, int factor) { return x * factor; }, pairs(), 2);
  EXPECT_TRUE(results[1].equal(at::tensor({2.0, 4.0})));
  EXPECT_EQ(strategy.unwrap(results).size(), 2);
  EXPECT_THAT(strategy.unwrap(5.0), ElementsAre(5.0));
  const auto distributed = strategy.experimental_distribute_datasets_from_function(
      [](const InputContext& context) { return Dataset::range(context.num_replicas_in_sync); });
  EXPECT_EQ(distributed.cardinality(), 1);
}

TEST(FirstVersionStrategy, RefusesTheDevicesThatTodaysRefuses) {
  EXPECT_THAT([] { MirroredStrategy({"CPU:0", "/cpu:0"}); }, ThrowsCode(ErrorCode::kInvalidArgument, "CPU:0"));
  EXPECT_THAT([] { MirroredStrategy({"GPU:77"}); }, ThrowsCode(ErrorCode::kInvalidArgument, "GPU:77"));
}

TEST(FirstVersionNumpyDataset, HasTheRowsOfOneArray) {
  MirroredStrategy strategy(cpus(2));
  EXPECT_EQ(values(strategy.experimental_make_numpy_dataset(at::tensor({6, 5, 3}))), (Ints{6, 5, 3}));
}

TEST(FirstVersionNumpyDataset, HasTheRowsOfATupleSideBySide) {
  MirroredStrategy strategy(cpus(2));
  const auto images = at::arange(6, at::kDouble).view({3, 2});
  const auto labels = at::tensor({3, 2, 8});
  for (const auto& dataset : {strategy.experimental_make_numpy_dataset(std::pair(labels, images)),
                              strategy.experimental_make_numpy_dataset(std::tuple(labels, images)),
                              strategy.experimental_make_numpy_dataset(Element{labels, images})}) {
    std::int64_t row = 0;
    for (const auto& element : dataset) {
      ASSERT_EQ(element.size(), 2);
      EXPECT_TRUE(element[0].equal(labels[row]));
      EXPECT_TRUE(element[1].equal(images[row++]));
    }
    EXPECT_EQ(row, 3);
  }
}

TEST(FirstVersionNumpyDataset, KeepsTheNamesOfAMapAndTheStringsOfAnElement) {
  MirroredStrategy strategy(cpus(2));
  const auto numbers = at::tensor({7, 0});
  for (const auto& element : strategy.experimental_make_numpy_dataset(std::map<std::string, at::Tensor>{{"a", numbers}}))
    EXPECT_THAT(element.names(), ElementsAre("a"));
  std::vector<std::string> texts;
  const Element named(std::vector<Component>{{"a", numbers}, {"b", Bytes{{"x", "y"}, {2}}}});
  for (const auto& element : strategy.experimental_make_numpy_dataset(named)) texts.push_back(element.text(1));
  EXPECT_THAT(texts, ElementsAre("x", "y"));
}

TEST(FirstVersionNumpyDataset, StacksTheArraysOfAList) {
  MirroredStrategy strategy(cpus(2));
  const std::vector list{at::tensor({4, 3}), at::tensor({6, 4}), at::tensor({1, 1})};
  const auto dataset = strategy.experimental_make_numpy_dataset(list);
  EXPECT_THAT(data::testing::batches(dataset), ElementsAre(Ints{4, 3}, Ints{6, 4}, Ints{1, 1}));
  // Through the strategy of today a vector is a list of components.
  lockstep::Strategy& today = strategy;
  EXPECT_EQ(today.experimental_make_numpy_dataset(list).make_iterator().next()->size(), 3);
}

TEST(FirstVersionNumpyDataset, ReadsFilesAsTodays) {
  const ScratchFolder folder;
  data::write_npy(folder / "a.npy", at::tensor({1, 2, 3}));
  MirroredStrategy strategy(cpus(2));
  EXPECT_EQ(values(strategy.experimental_make_numpy_dataset(std::vector<std::string>{folder / "a.npy"})), (Ints{1, 2, 3}));
}

TEST(FirstVersionNumpyDataset, RefusesWhatHasNoRows) {
  MirroredStrategy strategy(cpus(2));
  const auto refused = [&](const auto& input, const auto&... words) {
    EXPECT_THAT([&] { strategy.experimental_make_numpy_dataset(input); }, ThrowsCode(ErrorCode::kInvalidArgument, words...));
  };
  refused(std::vector<at::Tensor>{}, "empty");
  refused(std::vector{at::ones({2}), at::ones({3})}, "array 1", "[2]", "[3]", "tuple");
  refused(std::vector{at::ones({2}), at::ones({2}, at::kLong)}, "array 1", "Float", "Long");
  refused(std::vector{at::ones({2}), at::Tensor()}, "array 1", "undefined");
  refused(at::scalar_tensor(1.0), "scalar");
  refused(std::pair(at::ones({2}), at::ones({3})), "2", "3");
  refused(Element(), "no tensor");
}

}  // namespace
}  // namespace lockstep::compat::v1

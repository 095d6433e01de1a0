#include <torch/torch.h>

#include "lockstep/lockstep.h"
#include "tests/support/testing.h"

// Tensors without ordinary memory are refused with a typed error, and numbers that do not fit are not wrapped.

namespace lockstep {
namespace {

using testing::code_of;
using testing::cpus;
using testing::ThrowsCode;

std::vector<torch::Tensor> odd_tensors() {
  return {torch::Tensor(), torch::eye(2).to_sparse(), torch::empty({2, 2}, torch::kMeta),
          torch::quantize_per_tensor(torch::ones({2, 2}), 0.1, 0, torch::kQInt8)};
}

TEST(OddTensors, AreRefusedInsideReplicas) {
  MirroredStrategy strategy(cpus(2));
  for (const auto& odd : odd_tensors()) {
    const auto in_replicas = [&](auto body) { return code_of([&] { strategy.run(body); }); };
    EXPECT_EQ(in_replicas([&](ReplicaContext& context) { context.all_reduce("sum", odd); }), ErrorCode::kInvalidArgument);
    EXPECT_EQ(in_replicas([&](ReplicaContext& context) { context.all_gather(odd, 0); }), ErrorCode::kInvalidArgument);
    EXPECT_EQ(in_replicas([&](ReplicaContext& context) {
                auto value = odd;
                context.all_reduce_("sum", value);
              }),
              ErrorCode::kInvalidArgument);
    EXPECT_EQ(in_replicas([&] { compute_average_loss(odd); }), ErrorCode::kInvalidArgument);
    EXPECT_EQ(in_replicas([&] { compute_average_loss(torch::ones({2}), odd); }), ErrorCode::kInvalidArgument);
    EXPECT_EQ(in_replicas([&] { scale_regularization_loss(odd); }), ErrorCode::kInvalidArgument);
  }
}

TEST(OddTensors, AreRefusedAcrossReplicas) {
  MirroredStrategy strategy(cpus(2));
  const auto scope = strategy.scope();
  Variable variable(torch::ones({2, 2}));
  for (const auto& odd : odd_tensors()) {
    const PerReplica<torch::Tensor> each({odd, odd});
    EXPECT_EQ(code_of([&] { strategy.reduce("sum", each); }), ErrorCode::kInvalidArgument);
    EXPECT_EQ(code_of([&] { strategy.reduce("mean", each, 0); }), ErrorCode::kInvalidArgument);
    EXPECT_EQ(code_of([&] { strategy.reduce("mean", odd); }), ErrorCode::kInvalidArgument);
    EXPECT_EQ(code_of([&] { strategy.gather(each, 0); }), ErrorCode::kInvalidArgument);
    EXPECT_EQ(code_of([&] { strategy.gather(odd, 0); }), ErrorCode::kInvalidArgument);
    EXPECT_EQ(code_of([&] { strategy.extended().broadcast_to(odd); }), ErrorCode::kInvalidArgument);
    EXPECT_EQ(code_of([&] { Variable made(odd); }), ErrorCode::kInvalidArgument);
    EXPECT_EQ(code_of([&] { variable.assign(odd); }), ErrorCode::kInvalidArgument);
    EXPECT_EQ(code_of([&] { variable.scatter_add({odd, torch::tensor({0, 1})}); }), ErrorCode::kInvalidArgument);
    EXPECT_EQ(code_of([&] { data::Dataset::from_tensor_slices(data::Element({odd})); }), ErrorCode::kInvalidArgument);
  }
  EXPECT_THAT([] { Variable made(std::function<torch::Tensor()>{}); }, ThrowsCode(ErrorCode::kInvalidArgument, "initializer"));
}

TEST(OddTensors, ConjugatedOnesAreGatheredAsTheyRead) {
  MirroredStrategy strategy(cpus(2));
  const auto value = torch::complex(torch::ones({2}), torch::ones({2}));
  const auto gathered = strategy.run([&](ReplicaContext& context) { return context.all_gather(value.conj(), 0); });
  EXPECT_TRUE(torch::equal(torch::imag(gathered[1].resolve_conj()), -torch::ones({4})));
}

TEST(OddTensors, AMeanOfSmallIntegersDoesNotOverflow) {
  MirroredStrategy strategy(cpus(2));
  const auto value = torch::full({4}, 100, torch::kInt8);
  const PerReplica<torch::Tensor> each({value, value});
  EXPECT_EQ(strategy.reduce("mean", each).max().item<double>(), 100.0);
  EXPECT_EQ(strategy.reduce("mean", each, 0).item<double>(), 100.0);
  const auto inside = strategy.run([&](ReplicaContext& context) { return context.all_reduce("mean", value); });
  EXPECT_EQ(inside[1].max().item<double>(), 100.0);
  const auto add = [](std::span<const torch::Tensor> values) { return values[0] + values[1]; };
  const ReductionToOneDevice own("", add);
  EXPECT_EQ(own.reduce(ReduceOp::kMean, each.values()).max().item<double>(), 100.0);
}

TEST(OddTensors, AnAxisNamedTwiceIsRefused) {
  MirroredStrategy strategy(cpus(2));
  const PerReplica<torch::Tensor> each({torch::ones({2, 2}), torch::ones({2, 2})});
  EXPECT_THAT([&] { strategy.reduce("sum", each, Axis{0, -2}); }, ThrowsCode(ErrorCode::kInvalidArgument, "named twice"));
}

TEST(OddTensors, RowsThatDoNotFitTogetherAreRefused) {
  MirroredStrategy strategy(cpus(2));
  const PerReplica<IndexedSlices> each({{torch::ones({1, 2}), torch::tensor({0})}, {torch::ones({1, 3}), torch::tensor({0})}});
  EXPECT_THAT([&] { strategy.reduce("sum", each); }, ThrowsCode(ErrorCode::kInvalidArgument, "rows of shape"));
  EXPECT_THAT(
      [] {
        to_dense({torch::ones({1, 2}), torch::tensor({0}), {-4, 2}});
      },
      ThrowsCode(ErrorCode::kInvalidArgument, "negative"));
}

TEST(OddTensors, ARestoredCountIsExact) {
  MirroredStrategy strategy(cpus(2));
  const auto scope = strategy.scope();
  const VariableOptions on_read{.synchronization = VariableSynchronization::kOnRead, .aggregation = VariableAggregation::kSum};
  Variable count(torch::zeros({}, torch::kLong), on_read);
  const auto large = (std::int64_t{1} << 60) + 1;
  count.restore(torch::tensor(large));
  EXPECT_EQ(count.value().item<std::int64_t>(), large);
  Variable flag(torch::zeros({}, torch::kBool), on_read);
  flag.assign(torch::ones({}, torch::kBool));
  EXPECT_TRUE(flag.components()[1].item<bool>());
  flag.restore(torch::zeros({}, torch::kBool));
  EXPECT_FALSE(flag.components()[0].item<bool>());
  Variable wave(torch::zeros({1}, torch::kComplexDouble), on_read);
  const auto given = torch::complex(torch::ones({1}, torch::kDouble), torch::ones({1}, torch::kDouble));
  wave.assign(given);
  EXPECT_TRUE(torch::equal(wave.value(), given));
}

TEST(OddTensors, ABooleanVariableHasNoArithmetic) {
  Variable flag(torch::ones({}, torch::kBool));
  EXPECT_THAT([&] { flag.assign_sub(torch::ones({}, torch::kBool)); }, ThrowsCode(ErrorCode::kInvalidArgument, "bool"));
}

TEST(OddTensors, ARangeThatCannotBeCountedIsRefused) {
  constexpr auto kLowest = std::numeric_limits<std::int64_t>::min();
  constexpr auto kHighest = std::numeric_limits<std::int64_t>::max();
  EXPECT_THAT([] { data::Dataset::range(kLowest, kHighest, 1); }, ThrowsCode(ErrorCode::kInvalidArgument, "counted"));
  const auto far = data::Dataset::range(kLowest, kHighest, kHighest);
  EXPECT_EQ(far.cardinality(), 3);
  std::vector<std::int64_t> values;
  for (const auto& element : far) values.push_back(element[0].item<std::int64_t>());
  EXPECT_EQ(values, (std::vector<std::int64_t>{kLowest, -1, kHighest - 1}));
}

}  // namespace
}  // namespace lockstep

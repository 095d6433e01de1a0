#include "lockstep/strategy/function.h"

#include <ATen/ATen.h>
#include <gmock/gmock.h>

#include <atomic>

#include "lockstep/strategy/mirrored_strategy.h"
#include "tests/support/testing.h"

// Functions on the CPU, where every call is a run(). tests/correctness/cuda/function_test.cc has them on a GPU.

namespace lockstep {
namespace {

using testing::code_of;
using ::testing::HasSubstr;

TEST(Function, IsARunOnTheCpu) {
  MirroredStrategy strategy({"CPU:0", "CPU:1"});
  std::atomic<int> calls = 0;
  const auto body = [&](ReplicaContext& context, const at::Tensor& x, double by) {
    ++calls;
    return x * by + context.replica_id_in_sync_group();
  };
  auto doubled = strategy.function(body, {.is_recorded = true});
  for (int i = 0; i < 5; ++i) {
    const auto results = doubled(PerReplica<at::Tensor>({at::ones({2}), at::zeros({2})}), 2.0);
    EXPECT_TRUE(at::equal(results[0], at::full({2}, 2.0)));
    EXPECT_TRUE(at::equal(results[1], at::full({2}, 1.0)));
  }
  EXPECT_EQ(calls, 10);
  EXPECT_EQ(doubled.recordings(), 0U);
  EXPECT_THAT(doubled.why_not(), HasSubstr("CPU"));
  EXPECT_THAT(strategy.function(body).why_not(), HasSubstr("is_recorded"));
}

TEST(Function, MayReturnNothingAndTakeWhatCannotBeCompared) {
  MirroredStrategy strategy(std::vector<std::string>{"CPU:0"});
  struct Opaque {
    explicit Opaque(int with) : value(with) {}
    int value;
  };
  int sum = 0;
  auto add = strategy.function([&](const Opaque& with) { sum += with.value; });
  add(Opaque(2));
  add(Opaque(3));
  EXPECT_EQ(sum, 5);
}

TEST(Function, PassesDatasetElementsAndErrorsOn) {
  MirroredStrategy strategy({"CPU:0", "CPU:1"});
  auto total = strategy.function([](const at::Tensor& x, const at::Tensor& y) {
    if (x.size(0) == 0) throw Error(ErrorCode::kOutOfRange, "no rows");
    return (x + y).sum();
  });
  const data::Element element({at::ones({3}), at::ones({3})});
  const data::Element empty({at::ones({0}), at::ones({0})});
  EXPECT_EQ(total(PerReplica<data::Element>({element, element}))[1].item<double>(), 6);
  EXPECT_EQ(code_of([&] { total(PerReplica<data::Element>({element, empty})); }), ErrorCode::kOutOfRange);
  EXPECT_EQ(total(PerReplica<data::Element>({element, element}))[0].item<double>(), 6);
}

TEST(Function, RefusesOptionsThatCannotBe) {
  MirroredStrategy strategy(std::vector<std::string>{"CPU:0"});
  const auto with = [&](const FunctionOptions& options) { return code_of([&] { strategy.function([] {}, options); }); };
  EXPECT_EQ(with({.warm_up = 0}), ErrorCode::kInvalidArgument);
  EXPECT_EQ(with({.most_recordings = -1}), ErrorCode::kInvalidArgument);
}

TEST(SignatureOf, IsEqualForCallsThatCanShareARecording) {
  const auto signature = [](at::Tensor x, double number) {
    internal::SignatureOf of(typeid(int));
    auto arguments = std::make_tuple(std::move(x), number);
    of.begin_replica();
    nest::for_each_leaf(arguments, of);
    return of.numbers();
  };
  const auto first = signature(at::ones({2, 3}), 1.5);
  EXPECT_EQ(signature(at::zeros({2, 3}), 1.5), first);
  EXPECT_NE(signature(at::ones({3, 2}), 1.5), first);
  EXPECT_NE(signature(at::ones({2, 3}), 2.5), first);
  EXPECT_NE(signature(at::ones({2, 3}, at::kDouble), 1.5), first);
  EXPECT_NE(signature(at::ones({2, 3}).requires_grad_(), 1.5), first);
  EXPECT_NE(signature(at::Tensor(), 1.5), first);
}

}  // namespace
}  // namespace lockstep

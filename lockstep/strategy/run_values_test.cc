#include <ATen/ATen.h>

#include <map>
#include <memory>
#include <tuple>

#include "lockstep/strategy/mirrored_strategy.h"
#include "lockstep/strategy/one_device_strategy.h"
#include "tests/support/testing.h"

// What goes into run() and comes out of it, whatever its C++ type.

namespace lockstep {
namespace {

using testing::cpus;
using ::testing::ElementsAre;
using testing::ThrowsCode;

int id(ReplicaContext& context) { return context.replica_id_in_sync_group(); }
double halved(int value) { return value / 2.0; }

TEST(RunValues, TruthValuesAreResultsAndArguments) {
  MirroredStrategy strategy(cpus(3));
  auto is_odd = strategy.run([](ReplicaContext& context) { return id(context) % 2 == 1; });
  EXPECT_FALSE(is_odd[0]);
  EXPECT_TRUE(is_odd[1]);
  const auto copy = is_odd;
  EXPECT_TRUE(copy[1]);
  EXPECT_FALSE(copy[2]);
  EXPECT_THAT(strategy.run([](bool odd) { return odd ? 1 : 0; }, is_odd).values(), ElementsAre(0, 1, 0));
  EXPECT_THAT(strategy.run([&] { return copy.local() ? 1 : 0; }).values(), ElementsAre(0, 1, 0));
}

TEST(RunValues, ResultsMayBeMoveOnly) {
  MirroredStrategy strategy(cpus(2));
  const auto owned = strategy.run([](ReplicaContext& context) { return std::make_unique<int>(id(context) + 5); });
  EXPECT_EQ(*owned[0], 5);
  EXPECT_EQ(*owned[1], 6);
}

struct NoDefault {
  explicit NoDefault(int v) : value(v) {}
  int value;
};

TEST(RunValues, ResultsNeedNoDefaultConstructor) {
  MirroredStrategy strategy(cpus(2));
  EXPECT_EQ(strategy.run([](ReplicaContext& context) { return NoDefault(id(context)); })[1].value, 1);
}

TEST(RunValues, AReferenceIsReturnedAsACopy) {
  MirroredStrategy strategy(cpus(2));
  std::string text = "before";
  const auto texts = strategy.run([&]() -> const std::string& { return text; });
  text = "after";
  EXPECT_THAT(texts.values(), ElementsAre("before", "before"));
}

TEST(RunValues, FunctionsComeInEveryForm) {
  MirroredStrategy strategy(cpus(2));
  const PerReplica<int> values({3, 5});
  EXPECT_THAT(strategy.run(halved, values).values(), ElementsAre(1.5, 2.5));
  EXPECT_THAT(strategy.run(std::function<double(int)>(halved), values).values(), ElementsAre(1.5, 2.5));
  const auto times = [](ReplicaContext& context, int value, int factor) { return id(context) + value * factor; };
  EXPECT_THAT(strategy.run(times, values, 10).values(), ElementsAre(30, 51));
}

TEST(RunValues, PartsOfStructuresArePicked) {
  MirroredStrategy strategy(cpus(2));
  const std::map<std::string, PerReplica<int>> map = {{"a", PerReplica<int>({1, 2})}, {"b", PerReplica<int>({30, 40})}};
  EXPECT_THAT(strategy.run([](std::map<std::string, int> all) { return all["a"] + all["b"]; }, map).values(),
              ElementsAre(31, 42));
  const std::vector<Mirrored<int>> list = {Mirrored<int>({1, 1}), Mirrored<int>({2, 2})};
  EXPECT_THAT(strategy.run([](std::vector<int> all) { return all[0] * 10 + all[1]; }, list).values(), ElementsAre(12, 12));
  const auto tuple = std::tuple(PerReplica<int>({1, 2}), 7, std::pair(PerReplica<int>({3, 4}), std::string("x")));
  EXPECT_THAT(strategy.run([](auto t) { return std::get<0>(t) + std::get<1>(t) + std::get<2>(t).first; }, tuple).values(),
              ElementsAre(11, 13));
}

TEST(RunValues, AnArgumentWithoutAComponentForEachReplicaIsRefused) {
  MirroredStrategy strategy(cpus(3));
  const auto nothing = [](const auto&) {};
  const PerReplica<int> two({1, 2});
  const PerReplica<int> four({1, 2, 3, 4});
  EXPECT_THAT([&] { strategy.run(nothing, two); }, ThrowsCode(ErrorCode::kInvalidArgument, "2", "3"));
  EXPECT_THAT([&] { strategy.run(nothing, four); }, ThrowsCode(ErrorCode::kInvalidArgument, "4", "3"));
  EXPECT_THAT([&] { strategy.run(nothing, Mirrored<int>({1})); }, ThrowsCode(ErrorCode::kInvalidArgument));
  EXPECT_THAT([&] { strategy.run(nothing, std::tuple(1, two)); }, ThrowsCode(ErrorCode::kInvalidArgument));
  EXPECT_THAT([&] { strategy.run(nothing, std::vector{two}); }, ThrowsCode(ErrorCode::kInvalidArgument));
  EXPECT_THAT(
      [&] {
        strategy.run(nothing, std::map<int, PerReplica<int>>{{1, two}});
      },
      ThrowsCode(ErrorCode::kInvalidArgument));
}

TEST(RunValues, OnOneDeviceThereIsOneOfEach) {
  OneDeviceStrategy strategy("CPU:0");
  EXPECT_EQ(strategy.num_replicas_in_sync(), 1);
  const auto sum =
      strategy.run([](ReplicaContext& context, int value) { return context.all_reduce("sum", value); }, PerReplica<int>({4}));
  EXPECT_THAT(sum.values(), ElementsAre(4));
  EXPECT_EQ(strategy.reduce("mean", PerReplica<double>({4.0})), 4.0);
}

}  // namespace
}  // namespace lockstep

#include <ATen/ATen.h>

#include <array>
#include <map>
#include <sstream>
#include <tuple>
#include <utility>

#include "lockstep/replica/distributed_values.h"
#include "lockstep/strategy/mirrored_strategy.h"
#include "tests/support/testing.h"

// The text of per-replica and mirrored values.

namespace lockstep {
namespace {

template <typename T>
std::string text(const T& value) {
  std::ostringstream out;
  out << value;
  return out.str();
}

TEST(Printing, ShowsEveryReplicasNumber) {
  EXPECT_EQ(text(PerReplica<int>({3, 4})), "PerReplica:{\n  0: 3,\n  1: 4\n}");
  EXPECT_EQ(text(PerReplica<double>({0.5})), "PerReplica:{\n  0: 0.5\n}");
  EXPECT_EQ(text(Mirrored<int>({7, 7, 7})), "Mirrored:{\n  0: 7,\n  1: 7,\n  2: 7\n}");
  EXPECT_EQ(text(PerReplica<std::string>({"a", "b"})), "PerReplica:{\n  0: a,\n  1: b\n}");
}

TEST(Printing, OfNoReplicasIsEmpty) {
  EXPECT_EQ(text(PerReplica<int>()), "PerReplica:{\n}");
  EXPECT_EQ(text(Mirrored<at::Tensor>()), "Mirrored:{\n}");
}

TEST(Printing, ShowsTensorsAsLibTorchDoes) {
  const auto a = at::arange(2, at::kFloat);
  const auto b = at::ones({});
  EXPECT_EQ(text(PerReplica<at::Tensor>({a, b})), str("PerReplica:{\n  0: ", a, ",\n  1: ", b, "\n}"));
}

TEST(Printing, ShowsTheItemsOfStructures) {
  using Pair = std::pair<int, std::string>;
  EXPECT_EQ(text(PerReplica<std::vector<int>>({{1, 2}, {}})), "PerReplica:{\n  0: [1, 2],\n  1: []\n}");
  EXPECT_EQ(text(PerReplica<Pair>({{1, "x"}})), "PerReplica:{\n  0: (1, x)\n}");
  EXPECT_EQ(text(PerReplica<std::tuple<>>(std::vector(1, std::tuple<>()))), "PerReplica:{\n  0: ()\n}");
  EXPECT_EQ(text(PerReplica<std::array<int, 3>>({{1, 2, 3}})), "PerReplica:{\n  0: (1, 2, 3)\n}");
  EXPECT_EQ(text(Mirrored<std::map<std::string, int>>({{{"loss", 1}, {"seen", 2}}})), "Mirrored:{\n  0: {loss: 1, seen: 2}\n}");
}

struct Step {
  int number;
  std::vector<double> losses;
};
struct Nested {
  Step step;
  std::map<int, std::tuple<int, int>> more;
};
class Opaque {
 public:
  explicit Opaque(int value) : value_(value) {}
  int value() const { return value_; }

 private:
  int value_;
};

TEST(Printing, ShowsTheFieldsOfStructsAndNestsThem) {
  EXPECT_EQ(text(PerReplica<Step>(std::vector{Step{1, {0.5, 2}}})), "PerReplica:{\n  0: (1, [0.5, 2])\n}");
  EXPECT_EQ(text(PerReplica<Nested>(std::vector{Nested{{1, {3}}, {{7, {8, 9}}}}})),
            "PerReplica:{\n  0: ((1, [3]), {7: (8, 9)})\n}");
  EXPECT_EQ(text(PerReplica<std::vector<Step>>(std::vector<std::vector<Step>>(1, {{1, {}}, {2, {}}}))),
            "PerReplica:{\n  0: [(1, []), (2, [])]\n}");
}

TEST(Printing, NamesWhatItCannotShow) {
  EXPECT_EQ(text(PerReplica<Opaque>({Opaque(1)})), "PerReplica:{\n  0: <value>\n}");
  const IndexedSlices slices{at::ones({1, 2}), at::zeros({1}, at::kLong), {3, 2}};
  EXPECT_EQ(text(PerReplica<IndexedSlices>({slices})), "PerReplica:{\n  0: IndexedSlices(...)\n}");
}

TEST(Printing, ShowsWhatRunReturns) {
  MirroredStrategy strategy(testing::cpus(3));
  const auto ids = strategy.run([](ReplicaContext& context) { return context.replica_id_in_sync_group(); });
  EXPECT_EQ(text(ids), "PerReplica:{\n  0: 0,\n  1: 1,\n  2: 2\n}");
}

TEST(DistributedValues, ComponentsAreReachedByReplica) {
  MirroredStrategy strategy(testing::cpus(2));
  const PerReplica<int> values({5, 6});
  const Mirrored<int> same({8, 8});
  EXPECT_EQ(strategy.run([&] { return values.local() * 10 + same.get(); }).values(), (std::vector<int>{58, 68}));
  EXPECT_EQ(same.get(), 8);
  EXPECT_THAT([&] { return values.local(); }, testing::ThrowsCode(ErrorCode::kInvalidArgument));
  EXPECT_THAT([&] { (void)values[2]; }, testing::ThrowsCode(ErrorCode::kInvalidArgument, "component 2"));
}

}  // namespace
}  // namespace lockstep

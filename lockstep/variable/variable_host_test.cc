#include "lockstep/variable/variable_host.h"

#include <ATen/ATen.h>
#include <gmock/gmock.h>

#include "lockstep/strategy/strategy.h"
#include "lockstep/strategy/strategy_devices.h"
#include "lockstep/strategy/strategy_extended.h"
#include "tests/support/testing.h"

// Variables of a strategy that keeps them elsewhere: here in a map.

namespace lockstep {
namespace {

using testing::code_of;
using testing::cpus;

struct Kept : RemoteVariable {
  at::Tensor read() const override { return value.clone(); }
  at::Tensor read_rows(const at::Tensor& ids) const override { return value.index_select(0, ids); }
  void write(VariableWrite how, const at::Tensor& given) override {
    if (how == VariableWrite::kAssign) value.copy_(given);
    else value.add_(given, how == VariableWrite::kAdd ? 1 : -1);
  }
  void write_rows(VariableWrite how, const IndexedSlices& rows) override {
    if (how == VariableWrite::kAssign) value.index_copy_(0, rows.indices, rows.values);
    else value.index_add_(0, rows.indices, rows.values, how == VariableWrite::kAdd ? 1 : -1);
  }
  std::vector<std::string> devices() const override { return {place}; }

  at::Tensor value;
  std::string place;
};

struct Shelf : VariableHost {
  bool is_on_coordinator() const noexcept override { return false; }
  std::shared_ptr<RemoteVariable> create(const RemoteDescription& description, const PartInitializer& initial,
                                         const Variable* beside) override {
    auto one = std::make_shared<Kept>();
    one->value = initial(description.sizes, std::vector<std::int64_t>(description.sizes.size())).clone();
    one->place = beside != nullptr ? beside->devices()[0] : "place " + std::to_string(count++);
    all[description.name] = one;
    return one;
  }
  std::map<std::string, std::shared_ptr<Kept>> all;
  int count = 0;
};

struct Elsewhere : Strategy {
  explicit Elsewhere(const std::shared_ptr<Shelf>& shelf, int replicas = 1)
      : Strategy(resolve_devices("Elsewhere", cpus(replicas), 1), {.variable_host = shelf}, default_cross_device_ops()) {}
  std::string name() const override { return "Elsewhere"; }
};

TEST(RemoteVariable, IsMadeReadAndWrittenWhereItsStrategyKeepsIt) {
  const auto shelf = std::make_shared<Shelf>();
  Elsewhere strategy(shelf);
  const Variable outside(at::ones({2}));
  const auto scope = strategy.scope();
  Variable v(at::tensor({1.0F, 2.0F, 3.0F}), {.name = "v"});
  EXPECT_FALSE(outside.is_remote());
  ASSERT_TRUE(v.is_remote());
  EXPECT_EQ(v.sizes(), at::IntArrayRef({3}));
  EXPECT_EQ(v.scalar_type(), at::kFloat);
  EXPECT_THAT(v.devices(), ::testing::ElementsAre("place 0"));
  EXPECT_TRUE(v.value().requires_grad());
  v.assign_add(at::ones({3})).assign_sub(0.5).scatter_add({at::full({2}, 10.0F), at::tensor({0, 0})});
  EXPECT_TRUE(at::equal(shelf->all["v"]->value, at::tensor({21.5F, 2.5F, 3.5F})));
  EXPECT_TRUE(at::equal(v.rows(at::tensor({2, 0})), at::tensor({3.5F, 21.5F})));
  EXPECT_TRUE(at::equal(v.saved_value(), v.read_value()));
  v.restore(at::zeros({3}));
  EXPECT_EQ(v.value().sum().item<float>(), 0);
  v.assign(outside.value().new_full({3}, 4.0F));
  Variable w(at::zeros({3}), {.name = "w"});
  w.assign(v);
  EXPECT_TRUE(at::equal(shelf->all["w"]->value, at::full({3}, 4.0F)));
  EXPECT_EQ(code_of([&] { v.assign(at::ones({2})); }), ErrorCode::kInvalidArgument);
  EXPECT_EQ(code_of([&] { v.rows(at::tensor({3})); }), ErrorCode::kOutOfRange);
  EXPECT_EQ(code_of([&] { v.rows(at::tensor({0.5})); }), ErrorCode::kInvalidArgument);
}

TEST(Variable, IsMadeByParts) {
  const auto rows = [](const std::vector<std::int64_t>& shape, const std::vector<std::int64_t>& offset) {
    return at::arange(offset[0], offset[0] + shape[0], at::kLong);
  };
  const auto shelf = std::make_shared<Shelf>();
  Elsewhere strategy(shelf);
  const Variable here(rows, {3}, at::kLong);
  const auto scope = strategy.scope();
  for (const auto& one : {here, Variable(rows, {3}, at::kLong, {.name = "there"})})
    EXPECT_TRUE(at::equal(one.value(), at::tensor({0, 1, 2})));
  EXPECT_EQ(code_of([&] { Variable(rows, {3}, at::kFloat); }), ErrorCode::kInvalidArgument);
  EXPECT_EQ(code_of([&] { Variable(PartInitializer(), {3}, at::kLong); }), ErrorCode::kInvalidArgument);
}

TEST(RemoteVariable, StandsBesideAnother) {
  const auto shelf = std::make_shared<Shelf>();
  Elsewhere strategy(shelf);
  const auto scope = strategy.scope();
  Variable a(1.0), b(2.0);
  {
    const auto beside = strategy.extended().colocate_vars_with(a);
    EXPECT_EQ(Variable(3.0).devices(), a.devices());
  }
  EXPECT_THAT(Variable(3.0).devices(), ::testing::ElementsAre("place 2"));
}

TEST(RemoteVariable, IsWrittenOnceByAllReplicas) {
  const auto shelf = std::make_shared<Shelf>();
  Elsewhere strategy(shelf, 2);
  std::optional<Variable> v;
  {
    const auto scope = strategy.scope();
    v.emplace(at::zeros({2}), VariableOptions{.name = "v", .aggregation = VariableAggregation::kSum});
  }
  strategy.run([&](ReplicaContext& context) {
    v->assign(at::full({2}, 1.0F + static_cast<float>(context.replica_id_in_sync_group())));
  });
  EXPECT_TRUE(at::equal(v->value(), at::full({2}, 3.0F)));
}

}  // namespace
}  // namespace lockstep

#include "lockstep/ps/held_gradients.h"

#include <ATen/ATen.h>
#include <gmock/gmock.h>

#include <algorithm>

#include "tests/support/ps_testing.h"
#include "tests/support/testing.h"

namespace lockstep::ps {
namespace {

using lockstep::testing::Arrived;
using lockstep::testing::code_of;
using lockstep::testing::LogCapture;
using lockstep::testing::MethodTable;
using lockstep::testing::piece_of;
using lockstep::testing::plain_rule;
using lockstep::testing::ThrowsCode;
using Kind = Operation::Kind;

std::int8_t dtype_of(const at::Tensor& tensor) { return static_cast<std::int8_t>(tensor.scalar_type()); }

struct Part {
  std::string name;
  Kind kind;
  at::Tensor values;
  at::Tensor ids = {};
};

// A store with a few variables, and what is held for them.
struct Server {
  Server() {
    const MethodTable table(store.methods());
    std::uint64_t sequence = 0;
    const auto make = [&](const std::string& name, const at::Tensor& value, const std::string& rule) {
      const Description description{.name = name,
                                    .dtype = dtype_of(value),
                                    .shape = value.sizes().vec(),
                                    .whole_shape = value.sizes().vec(),
                                    .rule = rule};
      ++sequence;
      table.call<CreateReply>(methods::kCreate, CreateRequest{{1, sequence, sequence}, description}, {value});
    };
    make("w", at::zeros({3}), "1");
    make("table", at::zeros({4, 2}), "1");
    make("mean", at::zeros({2}), "");
    make("count", at::zeros({1}, at::kLong), "");
  }

  StepHoldReply hold(std::uint64_t step, const Contribution& from, const std::vector<Part>& parts) {
    StepHoldRequest request{{}, "m", step, from};
    Outgoing sent;
    for (const auto& part : parts) {
      request.operations.push_back(
          {.name = part.name, .kind = part.kind, .dtype = dtype_of(part.values), .shape = part.values.sizes().vec()});
      if (part.ids.defined()) sent.payload.push_back(piece_of(part.ids));
      sent.payload.push_back(piece_of(part.values));
    }
    Arrived arrived(sent);
    return held.hold(request, arrived);
  }
  at::Tensor value(const std::string& name) const {
    at::Tensor copy;
    store.find(name)->look([&](const at::Tensor& value, const UpdateRule*, std::uint64_t) { copy = value.clone(); });
    return copy;
  }

  VariableStore store{{.rules = plain_rule}};
  HeldGradients held{store};
};

Contribution of_worker(std::uint32_t worker, std::uint64_t number = 1) { return {worker, worker + 10, number}; }
at::Tensor gradient(int worker) { return (at::arange(3, at::kFloat) + worker * 0.37F).sin() * 0.1F; }

TEST(HeldGradients, AppliesTheMeanInTheOrderOfTheWorkersWhoeverCameFirst) {
  std::vector<std::uint32_t> order{0, 1, 2, 3, 4};
  const auto g = gradient;
  const auto expected = -((((g(0) + g(1)) + (g(2) + g(3))) + g(4)) / 5.0);
  do {
    Server server;
    std::vector<Contribution> counted;
    for (const auto worker : order) {
      EXPECT_EQ(server.hold(0, of_worker(worker), {{"w", Kind::kGradient, gradient(static_cast<int>(worker))}}).next, 0U);
      counted.push_back(of_worker(worker));
    }
    server.hold(0, of_worker(9), {{"w", Kind::kGradient, at::ones({3})}});  // does not count
    server.held.apply({"m", 0, counted});
    EXPECT_TRUE(server.value("w").equal(expected));
    EXPECT_EQ(server.store.find("w")->version(), 1U);
    EXPECT_EQ(server.held.held(), 0U);
  } while (std::next_permutation(order.begin(), order.begin() + 3));
}

TEST(HeldGradients, MergesRowsAndBuffers) {
  Server server;
  const auto rows = [](float first) { return at::full({2, 2}, first); };
  server.hold(0, of_worker(0),
              {{"table", Kind::kGradientRows, rows(2), at::tensor({0, 1}, at::kLong)},
               {"table", Kind::kGradientRows, rows(4), at::tensor({1, 1}, at::kLong)},  // the table was used twice
               {"mean", Kind::kAssign, at::ones({2})},
               {"count", Kind::kAssign, at::full({1}, 5, at::kLong)}});
  server.hold(0, of_worker(1),
              {{"table", Kind::kGradientRows, rows(6), at::tensor({3, 1}, at::kLong)},
               {"mean", Kind::kAssign, at::full({2}, 4.0F)},
               {"count", Kind::kAssign, at::full({1}, 9, at::kLong)},
               {"w", Kind::kGradient, at::ones({3})}});
  server.held.apply({"m", 0, {of_worker(0), of_worker(1)}});
  EXPECT_TRUE(server.value("table").equal(at::tensor({-1.0F, -1.0F, -8.0F, -8.0F, 0.0F, 0.0F, -3.0F, -3.0F}).reshape({4, 2})));
  EXPECT_TRUE(server.value("mean").equal(at::full({2}, 2.5F)));
  EXPECT_EQ(server.value("count").item<std::int64_t>(), 5);
  EXPECT_TRUE(server.value("w").equal(at::full({3}, -0.5F)));  // who has no gradient has one of zeros
  EXPECT_EQ(server.store.find("table")->version(), 1U);
}

TEST(HeldGradients, AStepIsAppliedOnce) {
  Server server;
  const std::vector<Contribution> both{of_worker(0), of_worker(1)};
  for (const auto& one : both) server.hold(0, one, {{"w", Kind::kGradient, at::ones({3})}});
  lockstep::testing::on_threads(4, [&](int) { server.held.apply({"m", 0, both}); });
  EXPECT_TRUE(server.value("w").equal(at::full({3}, -1.0F)));
  EXPECT_EQ(server.hold(0, of_worker(1, 2), {{"w", Kind::kGradient, at::ones({3})}}).next, 1U);  // late
  EXPECT_EQ(server.held.held(), 0U);
  // A server that has its store again knows which steps that has.
  HeldGradients again(server.store);
  again.apply({"m", 0, both});
  EXPECT_TRUE(server.value("w").equal(at::full({3}, -1.0F)));
}

TEST(HeldGradients, UsesWhatIsThereWhenSomeWasLost) {
  Server server;
  const LogCapture log;
  server.hold(3, of_worker(1), {{"w", Kind::kGradient, at::ones({3})}});
  server.held.apply({"m", 3, {of_worker(0), of_worker(1)}});
  EXPECT_TRUE(server.value("w").equal(at::full({3}, -1.0F)));
  EXPECT_THAT(log.warnings(), ::testing::ElementsAre(::testing::HasSubstr("of 2 gradients 1 are not here")));
}

TEST(HeldGradients, RefusesWhatDoesNotFit) {
  Server server;
  const auto hold = [&](const Part& part) { return code_of([&] { server.hold(0, of_worker(0), {part}); }); };
  EXPECT_EQ(hold({"x", Kind::kGradient, at::ones({3})}), ErrorCode::kNotFound);
  EXPECT_EQ(hold({"w", Kind::kGradient, at::ones({4})}), ErrorCode::kInvalidArgument);
  EXPECT_EQ(hold({"w", Kind::kAdd, at::ones({3})}), ErrorCode::kInvalidArgument);
  EXPECT_EQ(hold({"mean", Kind::kGradient, at::ones({2})}), ErrorCode::kFailedPrecondition);
  EXPECT_EQ(hold({"table", Kind::kGradientRows, at::ones({1, 2}), at::tensor({4}, at::kLong)}), ErrorCode::kOutOfRange);
  EXPECT_EQ(hold({"table", Kind::kGradientRows, at::ones({1, 2})}), ErrorCode::kInvalidArgument);  // the id is missing
  StepHoldRequest large{{}, "m", 0, of_worker(0)};
  large.operations.push_back(
      {.name = "table", .kind = Kind::kGradientRows, .dtype = dtype_of(at::ones({})), .shape = {std::int64_t{1} << 60, 2}});
  Arrived nothing(Outgoing{});
  EXPECT_EQ(code_of([&] { server.held.hold(large, nothing); }), ErrorCode::kInvalidArgument);
  EXPECT_EQ(server.held.held(), 0U);
  for (std::uint64_t step = 0; step < 16; ++step) server.hold(step, of_worker(0), {});
  EXPECT_EQ(code_of([&] { server.hold(16, of_worker(0), {}); }), ErrorCode::kInvalidArgument);
  HeldGradients small(server.store, 4);
  StepHoldRequest one{{}, "m", 0, of_worker(0)};
  one.operations.push_back({.name = "w", .kind = Kind::kGradient, .dtype = dtype_of(at::ones({})), .shape = {3}});
  Arrived values(Outgoing{"", {piece_of(at::ones({3}))}});
  EXPECT_THAT([&] { small.hold(one, values); }, ThrowsCode(ErrorCode::kUnavailable, "out of memory"));
}

}  // namespace
}  // namespace lockstep::ps

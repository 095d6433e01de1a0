#include <ATen/ATen.h>
#include <gtest/gtest.h>

#include "lockstep/ps/change_order.h"
#include "lockstep/ps/store.h"
#include "lockstep/train/optimizers/optimizers.h"
#include "lockstep/train/optimizers/server_rule.h"
#include "tests/support/ps_testing.h"

// Copies of variables on another server, with what their optimizers have learned. Note [replication]

namespace lockstep {
namespace {

using ps::Operation;

struct Copied {
  at::Tensor value;
  std::uint64_t version = 0;
  std::int64_t steps = 0;
};
Copied look(const ps::VariableStore& store) {
  Copied out;
  store.find("v")->look([&](const at::Tensor& value, const ps::UpdateRule* rule, std::uint64_t version) {
    out = {value.clone(), version, rule->steps()};
  });
  return out;
}

void update(ps::VariableStore& store, std::uint64_t sequence) {
  const auto gradient = (at::arange(12).reshape({4, 3}) * 0.37 + static_cast<double>(sequence)).cos().to(at::kFloat);
  const Operation operation{"v", Operation::Kind::kGradient, static_cast<std::int8_t>(at::kFloat), {4, 3}};
  testing::MethodTable(store.methods())
      .call<ps::UpdateReply>(ps::methods::kUpdate, ps::UpdateRequest{{1, sequence, 1}, {operation}}, {gradient});
}

void copy(const ps::VariableStore& from, ps::VariableStore& to, std::uint64_t sequence) {
  const auto change = from.copy_of(from.find("v"), {2, sequence, sequence});
  ps::Outgoing message{change.fields({})};
  for (const auto& part : change.parts) message.payload.insert(message.payload.end(), part.pieces.begin(), part.pieces.end());
  testing::Arrived arrived(message);
  to.take_copy(arrived);
}

TEST(ServerCopy, GoesOnAsTheFirstWouldHave) {
  const std::vector<OptimizerSpec> specs{SGD(0.1), SGD({.learning_rate = 0.1, .momentum = 0.9}), Adagrad(0.1), Adam(0.01),
                                         Ftrl({.learning_rate = 0.1, .l1_regularization_strength = 0.01})};
  for (const auto& spec : specs)
    for (const std::uint64_t updates : {0U, 1U, 5U}) {
      ps::VariableStore first({.rules = make_server_rule});
      ps::VariableStore second({.rules = make_server_rule});
      const ps::Description description{.name = "v",
                                        .dtype = static_cast<std::int8_t>(at::kFloat),
                                        .shape = {4, 3},
                                        .whole_shape = {4, 3},
                                        .rule = spec.to_text()};
      testing::MethodTable(first.methods())
          .call<ps::CreateReply>(ps::methods::kCreate, ps::CreateRequest{{1, 1, 1}, description}, {at::ones({4, 3})});
      for (std::uint64_t i = 0; i < updates; ++i) update(first, 2 + i);
      copy(first, second, 1);
      second.take_clients(first.copy_of_clients());
      update(first, 50);
      update(second, 50);
      const auto expected = look(first);
      const auto found = look(second);
      EXPECT_TRUE(found.value.equal(expected.value)) << spec.to_text() << " after " << updates;
      EXPECT_EQ(found.version, updates + 1);
      EXPECT_EQ(found.steps, expected.steps);
      EXPECT_EQ(second.client_state(1).last_done, first.client_state(1).last_done);
      update(second, 50);  // as a client repeats it: it was done
      EXPECT_EQ(look(second).version, updates + 1);
      copy(second, first, 2);  // over what is there
      EXPECT_TRUE(look(first).value.equal(expected.value));
    }
}

}  // namespace
}  // namespace lockstep

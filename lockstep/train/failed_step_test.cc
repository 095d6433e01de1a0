#include "lockstep/variable/gradient_hooks.h"
#include "tests/support/train_testing.h"

// A step in which one replica throws is as if it had not been: nothing of it reaches the steps after it.

namespace lockstep {
namespace {

using namespace testing;

// Where replica `who` throws.
enum class Place { kForward, kHookInTheMiddle, kHookOfAParameter, kAfterBackward, kUnderNoSync };

struct Failure {
  Place place;
  int who;
  bool overlap;
};

void PrintTo(const Failure& failure, std::ostream* out) {
  *out << "place " << static_cast<int>(failure.place) << ", replica " << failure.who << ", overlap " << failure.overlap;
}

class FailedStep : public ::testing::TestWithParam<Failure> {
 protected:
  static constexpr int kReplicas = 3;

  Weights train(const std::vector<int>& failing_before) {
    torch::manual_seed(3);
    MirroredStrategy strategy(cpus(kReplicas));
    const auto scope = strategy.scope();
    auto model = mirrored<WithTable>();
    auto optimizer = lockstep::optimizer<Sgd>(model, torch::optim::SGDOptions(0.01).momentum(0.9),
                                              {.gradients = {.overlap = GetParam().overlap}});
    for (int step = 0; step < kSteps; ++step) {
      for (auto left = std::count(failing_before.begin(), failing_before.end(), step); left > 0; --left)
        EXPECT_THROW(strategy.run([&](ReplicaContext& context) { fail(*model, optimizer, context); }), std::domain_error);
      strategy.run([&](ReplicaContext& context) {
        model->loss(part_of(batch(step, 8), context)).backward();
        optimizer.step();
      });
    }
    expect_equal_copies(model, "after failed steps");
    return weights_of(model.at(0));
  }

 private:
  // A step on other rows, which does not come to its end.
  static void fail(WithTable& net, Optimizer& optimizer, const ReplicaContext& context) {
    const auto [place, who, overlap] = GetParam();
    const bool is_mine = context.replica_id_in_sync_group() == who;
    const auto x = part_of(batch(50, 8), context);
    const auto throw_at = [&](Place here) {
      if (is_mine && place == here) throw std::domain_error("planted");
    };
    const auto hidden = torch::tanh(net.dense->small(x));
    throw_at(Place::kForward);
    hidden.register_hook([&](const torch::Tensor&) { throw_at(Place::kHookInTheMiddle); });
    std::shared_ptr<void> hook;
    if (is_mine && place == Place::kHookOfAParameter)
      hook = internal::on_gradient_ready(net.dense->large->weight, [&](const at::Tensor&) { throw_at(place); });
    {
      const auto no_sync = optimizer.no_sync();
      if (place == Place::kUnderNoSync) net.loss(x).backward();
      throw_at(Place::kUnderNoSync);
    }
    net.dense->large(hidden).square().sum().backward();
    throw_at(Place::kAfterBackward);
    optimizer.step();
  }
};

TEST_P(FailedStep, LeavesNothingBehind) {
  const auto undisturbed = train({});
  expect_close(train({0}), undisturbed, "the first step failed", 0);
  expect_close(train({1, 1, 4}), undisturbed, "three later steps failed", 0);
}

std::vector<Failure> failures() {
  std::vector<Failure> all;
  for (const auto place :
       {Place::kForward, Place::kHookInTheMiddle, Place::kHookOfAParameter, Place::kAfterBackward, Place::kUnderNoSync})
    for (const int who : {0, 2})
      for (const bool overlap : {true, false}) all.push_back({place, who, overlap});
  return all;
}
INSTANTIATE_TEST_SUITE_P(Everywhere, FailedStep, ::testing::ValuesIn(failures()));

// The replicas that had reached step() are told why, and may go on.
TEST(FailedSteps, EveryReplicaMayFailAtOnce) {
  torch::manual_seed(3);
  MirroredStrategy strategy(cpus(2));
  const auto scope = strategy.scope();
  auto model = mirrored<SmallAndLarge>();
  auto optimizer = lockstep::optimizer<Sgd>(model, 0.01);
  for (int step = 0; step < kSteps; ++step) {
    const auto backward = [&](ReplicaContext& context) { loss_of(*model, part_of(batch(step, 8), context)).backward(); };
    EXPECT_THROW(strategy.run([&](ReplicaContext& context) {
      backward(context);
      throw std::domain_error("planted");
    }),
                 std::domain_error);
    strategy.run([&](ReplicaContext& context) {
      backward(context);
      optimizer.step();
    });
  }
  const auto alone = train_alone([] { return std::make_shared<SmallAndLarge>(); },
                                 [](SmallAndLarge& net, int step) { return loss_of(net, batch(step, 8)); });
  expect_close(weights_of(model.at(0)), alone, "every step failed once");
  expect_equal_copies(model, "every step failed once");
}

// A run that skips step() in one replica is refused, not left waiting, and changes nothing.
TEST(FailedSteps, AReplicaThatDoesNotStepIsAnErrorForAll) {
  MirroredStrategy strategy(cpus(2));
  const auto scope = strategy.scope();
  auto model = mirrored<SmallAndLarge>();
  auto optimizer = lockstep::optimizer<Sgd>(model, 0.01);
  const auto before = weights_of(model.at(0));
  const auto train = [&] {
    strategy.run([&](ReplicaContext& context) {
      loss_of(*model, part_of(batch(0, 8), context)).backward();
      if (context.replica_id_in_sync_group() == 0) optimizer.step();
    });
  };
  EXPECT_THAT(train, ThrowsCode(ErrorCode::kFailedPrecondition, "replica 1 returned"));
  expect_close(weights_of(model.at(0)), before, "replica 0", 0);
  expect_close(weights_of(model.at(1)), before, "replica 1", 0);
}

}  // namespace
}  // namespace lockstep

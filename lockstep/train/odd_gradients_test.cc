#include "tests/support/train_testing.h"

// Gradients that do not come as they usually do: none at all, for parameters that were frozen, from models without
// parameters.

namespace lockstep {
namespace {

using namespace testing;
using ::testing::ElementsAre;
using ::testing::IsEmpty;

// Passes its input on; its gradient is the one that came, or no tensor at all.
struct PassOrDrop : torch::autograd::Function<PassOrDrop> {
  static torch::Tensor forward(torch::autograd::AutogradContext* context, const torch::Tensor& x, bool passes) {
    context->saved_data["passes"] = passes;
    return x.clone();
  }
  static torch::autograd::variable_list backward(torch::autograd::AutogradContext* context,
                                                 torch::autograd::variable_list gradients) {
    return {context->saved_data["passes"].toBool() ? gradients[0] : torch::Tensor(), torch::Tensor()};
  }
};

struct Dropping : torch::nn::Module {
  explicit Dropping(std::int64_t size)
      : always(register_parameter("always", torch::ones({size}, torch::kDouble))),
        sometimes(register_parameter("sometimes", torch::ones({size}, torch::kDouble))) {}
  torch::Tensor loss(const torch::Tensor& x, bool passes) {
    return ((always + PassOrDrop::apply(sometimes, passes)).tanh() * x.sum()).sum();
  }
  torch::Tensor always, sometimes;
};

// The last step's sum must not be taken for the gradient that did not come.
TEST(UndefinedGradients, CountAsZero) {
  for (const std::int64_t size : {4, 8192})
    for (const bool overlap : {true, false}) {
      const auto make = [=] { return std::make_shared<Dropping>(size); };
      const auto passes = [](int step, int replica) { return step % 3 == 0 || (step % 3 == 1 && replica == 0); };
      torch::manual_seed(3);
      const auto alone = make();
      Sgd optimizer(alone->parameters(), 0.01);
      for (int step = 0; step < kSteps; ++step) {
        for (auto& p : alone->parameters()) p.mutable_grad().reset();
        for (int r = 0; r < 2; ++r)
          alone->loss(batch(step, 8).chunk(2)[static_cast<std::size_t>(r)], passes(step, r)).backward();
        optimizer.step();
      }
      const auto together = train_together(2, {.gradients = {.overlap = overlap}}, make,
                                           [&](auto& model, Optimizer& optimizer, int step, ReplicaContext& context) {
                                             const auto x = part_of(batch(step, 8), context);
                                             model->loss(x, passes(step, context.replica_id_in_sync_group())).backward();
                                             optimizer.step();
                                           });
      expect_close(together, weights_of(*alone), str(size, " elements, overlap ", overlap));
    }
}

// Computed and put in place by hand, as some loops do; some of the parameters, some of the steps.
TEST(GradientsSetByHand, AreBroughtTogetherAsThoseOfBackward) {
  const auto make = [] { return std::make_shared<SmallAndLarge>(); };
  const auto backward = [](SmallAndLarge& net, const torch::Tensor& x, int step) {
    const auto loss = loss_of(net, x);
    if (step % 3 == 1) return loss.backward();
    auto parameters = net.parameters();
    if (step % 3 == 2) parameters.resize(3);
    const auto gradients = torch::autograd::grad({loss}, parameters);
    for (std::size_t i = 0; i < parameters.size(); ++i) parameters[i].mutable_grad() = gradients[i];
  };
  torch::manual_seed(3);
  SmallAndLarge alone;
  Sgd of_alone(alone.parameters(), 0.01);
  for (int step = 0; step < kSteps; ++step) {
    for (auto& p : alone.parameters()) p.mutable_grad().reset();
    backward(alone, batch(step, 8), step);
    of_alone.step();
  }
  for (const int replicas : {1, 2, 3})
    for (const bool overlap : {true, false}) {
      const auto together = train_together(replicas, {.gradients = {.overlap = overlap}}, make,
                                           [&](auto& model, Optimizer& optimizer, int step, ReplicaContext& context) {
                                             backward(*model, part_of(batch(step, 8), context), step);
                                             optimizer.step();
                                           });
      expect_close(together, weights_of(alone), str(replicas, " replicas, overlap ", overlap));
    }
}

void freeze(SmallAndLarge& net, bool is_frozen) {
  for (auto& p : net.small->parameters()) p.requires_grad_(!is_frozen);
}

struct Frozen : SmallAndLarge {
  Frozen() { freeze(*this, true); }
};

TEST(FrozenParameters, AreNotChangedAndNotCalledUnused) {
  const LogCapture log;
  MirroredStrategy strategy(cpus(2));
  const auto scope = strategy.scope();
  auto model = mirrored<Frozen>();
  auto optimizer = lockstep::optimizer<Sgd>(model, 0.01);
  const auto before = model->small->weight.detach().clone();
  const auto other = model->large->weight.detach().clone();
  for (int step = 0; step < 3; ++step)
    strategy.run([&](ReplicaContext& context) {
      loss_of(*model, part_of(batch(step, 8), context)).backward();
      optimizer.step();
    });
  for (std::size_t r = 0; r < 2; ++r) EXPECT_TRUE(torch::equal(model.at(r).small->weight, before));
  EXPECT_FALSE(torch::equal(model.at(0).large->weight, other));
  expect_equal_copies(model, "frozen");
  EXPECT_FALSE(model.at(1).small->weight.requires_grad());
  EXPECT_THAT(optimizer.unused_parameters(), IsEmpty());
  EXPECT_THAT(log.warnings(), IsEmpty());
}

// Fine-tuning: first the head, then everything, with one optimizer; frozen[step] says which.
void expect_as_alone(const std::vector<bool>& frozen) {
  torch::manual_seed(3);
  SmallAndLarge alone;
  freeze(alone, frozen[0]);
  Sgd of_alone(alone.parameters(), 0.01);
  for (std::size_t step = 0; step < frozen.size(); ++step) {
    freeze(alone, frozen[step]);
    for (auto& p : alone.parameters()) p.mutable_grad().reset();
    loss_of(alone, batch(static_cast<int>(step), 8)).backward();
    of_alone.step();
  }
  for (const int replicas : {2, 3}) {
    torch::manual_seed(3);
    MirroredStrategy strategy(cpus(replicas));
    const auto scope = strategy.scope();
    auto model = mirrored<SmallAndLarge>();
    for (std::size_t r = 0; r < model.size(); ++r) freeze(model.at(r), frozen[0]);
    auto optimizer = lockstep::optimizer<Sgd>(model, 0.01);
    for (std::size_t step = 0; step < frozen.size(); ++step)
      strategy.run([&](ReplicaContext& context) {
        freeze(*model, frozen[step]);
        loss_of(*model, part_of(batch(static_cast<int>(step), 8), context)).backward();
        optimizer.step();
      });
    expect_equal_copies(model, str(replicas, " replicas"));
    expect_close(weights_of(model.at(0)), weights_of(alone), str(replicas, " replicas"));
  }
}

TEST(FrozenParameters, MayBeFrozenAfterAWhile) { expect_as_alone({false, false, true, true}); }
TEST(FrozenParameters, MayBeUnfrozenAfterAWhile) { expect_as_alone({true, true, false, false, false}); }
TEST(FrozenParameters, MayBeUnfrozenBeforeTheFirstStep) {
  torch::manual_seed(3);
  MirroredStrategy strategy(cpus(2));
  const auto scope = strategy.scope();
  auto model = mirrored<Frozen>();
  auto optimizer = lockstep::optimizer<Sgd>(model, 0.01);
  for (std::size_t r = 0; r < 2; ++r) freeze(model.at(r), false);
  for (int step = 0; step < kSteps; ++step)
    strategy.run([&](ReplicaContext& context) {
      loss_of(*model, part_of(batch(step, 8), context)).backward();
      optimizer.step();
    });
  const auto alone = train_alone([] { return std::make_shared<SmallAndLarge>(); },
                                 [](SmallAndLarge& net, int step) { return loss_of(net, batch(step, 8)); });
  expect_equal_copies(model, "unfrozen");
  expect_close(weights_of(model.at(0)), alone, "unfrozen");
}
TEST(FrozenParameters, MayBeFrozenByTurns) { expect_as_alone({true, false, true, false, false, true, false}); }

TEST(NoParameters, AStepIsAllowedAndDoesNothing) {
  MirroredStrategy strategy(cpus(2));
  const auto scope = strategy.scope();
  auto model = mirrored<torch::nn::Tanh>();
  auto optimizer = lockstep::optimizer<Sgd>(model, 0.01, {.clip_global_norm = 1.0});
  for (int step = 0; step < 3; ++step) {
    const auto outputs = strategy.run([&](ReplicaContext& context) {
      const auto x = torch::zeros({2}).requires_grad_();
      model->forward(x).sum().backward();
      optimizer.zero_grad();
      optimizer.step();
      return x.grad();
    });
    for (const auto& gradient : outputs) EXPECT_TRUE(torch::equal(gradient, torch::ones({2})));
  }
  EXPECT_EQ(optimizer.global_norm(), 0);
  EXPECT_THAT(optimizer.unused_parameters(), IsEmpty());
}

}  // namespace
}  // namespace lockstep

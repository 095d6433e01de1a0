#include "lockstep/train/optimizers/optimizers.h"

#include <torch/torch.h>

#include <sstream>

#include "lockstep/strategy/mirrored_strategy.h"
#include "lockstep/train/optimizer.h"
#include "lockstep/train/optimizers/optimizer_part.h"
#include "lockstep/train/schedules/schedules.h"
#include "tests/support/testing.h"

// Formulas are compared with Keras's in tests/oracle (optimizers.json); here is what stands around them.

namespace lockstep {
namespace {

using testing::cpus;
using testing::ThrowsCode;

const std::vector<std::string> kKinds = {"sgd",      "adam",   "adamw", "rmsprop", "adagrad",
                                         "adadelta", "adamax", "nadam", "ftrl",    "lion"};

// One with all the state it can have.
OptimizerSpec spec_of(const std::string& kind) {
  if (kind == "sgd") return SGD({.learning_rate = 0.05, .momentum = 0.9});
  if (kind == "adam") return Adam({.learning_rate = 0.05, .amsgrad = true, .use_ema = true});
  if (kind == "rmsprop") return RMSprop({.learning_rate = 0.05, .momentum = 0.5, .centered = true});
  return OptimizerSpec(kind).with_learning_rate(0.05);
}

struct Net : torch::nn::Module {
  Net()
      : first(register_module("first", torch::nn::Linear(4, 3))), second(register_module("second", torch::nn::Linear(3, 1))) {}
  torch::Tensor loss(const torch::Tensor& x) { return second(torch::tanh(first(x))).square().sum() / 8; }
  torch::nn::Linear first, second;
};

torch::Tensor batch(int step) { return (torch::arange(32).reshape({8, 4}) * 0.37 + step).sin(); }

std::vector<torch::Tensor> weights_of(const torch::nn::Module& module) {
  std::vector<torch::Tensor> weights;
  for (const auto& p : module.parameters()) weights.push_back(p.detach().clone());
  return weights;
}

bool are_equal(const std::vector<torch::Tensor>& a, const std::vector<torch::Tensor>& b) {
  return std::equal(a.begin(), a.end(), b.begin(), b.end(), [](const auto& x, const auto& y) { return x.equal(y); });
}

using Model = MirroredModule<Net>;

// `steps` steps, from number `first` on.
void train(MirroredStrategy& strategy, const Model& model, Optimizer& optimizer, int first, int steps) {
  for (int step = first; step < first + steps; ++step)
    strategy.run([&](ReplicaContext& context) {
      const auto parts = batch(step).tensor_split(context.num_replicas_in_sync());
      model->loss(parts[static_cast<std::size_t>(context.local_replica_id())]).backward();
      optimizer.step();
    });
}

TEST(OptimizerSpec, IsKnownByName) {
  for (const auto& kind : kKinds) EXPECT_EQ(OptimizerSpec(kind).kind(), kind);
  EXPECT_EQ(OptimizerSpec("RMSprop").kind(), "rmsprop");
  EXPECT_EQ(Adam({.name = "mine"}).name(), "mine");
  EXPECT_THAT([] { OptimizerSpec("adm"); }, ThrowsCode(ErrorCode::kInvalidArgument, "did you mean 'adam'?"));
}

TEST(OptimizerSpec, RefusesRulesThatContradict) {
  EXPECT_THAT([] { SGD({.clipnorm = 1, .clipvalue = 1}); }, ThrowsCode(ErrorCode::kInvalidArgument, "give one of them"));
  EXPECT_THAT([] { SGD({.clipnorm = 0}); }, ThrowsCode(ErrorCode::kInvalidArgument, "clipnorm is 0"));
  EXPECT_THAT([] { SGD({.momentum = 2}); }, ThrowsCode(ErrorCode::kInvalidArgument, "momentum is 2"));
  EXPECT_THAT([] { Adam({.gradient_accumulation_steps = 1}); }, ThrowsCode(ErrorCode::kInvalidArgument, "at least 2"));
  EXPECT_THAT([] { Ftrl({.learning_rate_power = 1}); }, ThrowsCode(ErrorCode::kInvalidArgument, "learning_rate_power"));
  EXPECT_THAT([] { Lion({.beta_1 = 0}); }, ThrowsCode(ErrorCode::kInvalidArgument, "beta_1 is 0"));
  EXPECT_THAT([] { SGD(-1.0); }, ThrowsCode(ErrorCode::kInvalidArgument, "-1"));
}

// The state of two replicas goes to three others, which go on as the first two would have.
TEST(OptimizerState, ARestoredOptimizerGoesOnBitForBit) {
  for (const auto& kind : kKinds) {
    torch::manual_seed(1);
    MirroredStrategy strategy(cpus(2));
    const auto scope = strategy.scope();
    const auto model = mirrored<Net>();
    auto optimizer = lockstep::optimizer(model, spec_of(kind));
    train(strategy, model, optimizer, 0, 3);
    const auto saved = optimizer.state();
    const auto weights = weights_of(model.at(0));
    optimizer.set_learning_rate(0.02);
    train(strategy, model, optimizer, 3, 3);

    const auto other = mirrored<Net>();
    auto restored = lockstep::optimizer(other, spec_of(kind));
    {
      const torch::NoGradGuard no_grad;
      for (std::size_t r = 0; r < other.size(); ++r)
        for (std::size_t i = 0; i < weights.size(); ++i) other.at(r).parameters()[i].copy_(weights[i]);
    }
    restored.load_state(saved);
    EXPECT_EQ(restored.iterations(), 3) << kind;
    EXPECT_EQ(restored.learning_rate(), 0.05) << kind;
    restored.set_learning_rate(0.02);
    train(strategy, other, restored, 3, 3);
    EXPECT_TRUE(are_equal(weights_of(model.at(0)), weights_of(other.at(0)))) << kind;
    EXPECT_TRUE(are_equal(weights_of(other.at(0)), weights_of(other.at(1)))) << kind;
    restored.use_averages();
    optimizer.use_averages();
    EXPECT_TRUE(are_equal(weights_of(model.at(0)), weights_of(other.at(0)))) << kind;
  }
}

TEST(OptimizerState, IsShownByName) {
  torch::manual_seed(1);
  Net net;
  const NamedTensors parameters = {{"first.weight", net.first->weight}, {"first.bias", net.first->bias}};
  const auto adam = Adam(0.1).make({net.first->weight, net.first->bias});
  net.loss(batch(0)).backward();
  adam->step();
  const auto state = get_optimizer_state(*adam, parameters);
  std::vector<std::string> names;
  for (const auto& [name, tensor] : state.tensors) names.push_back(name);
  EXPECT_THAT(names, ::testing::ElementsAre("exp_avg/first.weight", "exp_avg_sq/first.weight", "exp_avg/first.bias",
                                            "exp_avg_sq/first.bias"));
  EXPECT_THAT(state.numbers, ::testing::ElementsAre(std::pair("learning_rate/0", 0.1), std::pair("step/first.weight", 1.0),
                                                    std::pair("step/first.bias", 1.0)));
}

TEST(OptimizerState, OfAnotherModelOrKindIsRefusedAndChangesNothing) {
  Net net;
  const NamedTensors parameters = {{"w", net.first->weight}};
  const auto adam = Adam(0.1).make({net.first->weight});
  const auto lion = Lion(0.1).make({net.first->weight});
  net.loss(batch(0)).backward();
  adam->step();
  lion->step();
  auto state = get_optimizer_state(*adam, parameters);
  EXPECT_THAT([&] { set_optimizer_state(*lion, parameters, state); }, ThrowsCode(ErrorCode::kInvalidArgument, "exp_avg_sq/w"));
  EXPECT_EQ(get_optimizer_state(*lion, parameters).numbers[1].second, 1);
  state.tensors[0].second = torch::zeros({2});
  EXPECT_THAT([&] { set_optimizer_state(*adam, parameters, state); },
              ThrowsCode(ErrorCode::kInvalidArgument, "exp_avg/w", "[2]", "[3, 4]"));
  EXPECT_THAT([&] { get_optimizer_state(*adam, {}); }, ThrowsCode(ErrorCode::kInvalidArgument, "[3, 4]"));
}

// What a checkpoint asks before it changes anything.
TEST(OptimizerPart, OfAnotherKindOrModelSaysSoBeforeItIsRestored) {
  using ::testing::ElementsAre;
  using ::testing::HasSubstr;
  using ::testing::IsEmpty;
  MirroredStrategy strategy(cpus(2));
  const auto scope = strategy.scope();
  const auto model = mirrored<Net>();
  const auto made = [&](const OptimizerSpec& spec) { return optimizer_part(lockstep::optimizer(model, spec)); };
  auto trained = lockstep::optimizer(model, spec_of("adam"));
  train(strategy, model, trained, 0, 2);
  const auto of_adam = optimizer_part(trained)->save();
  EXPECT_EQ(of_adam.values.at("kind"), "Adam");
  EXPECT_THAT(made(SGD(0.1))->problems(of_adam), ElementsAre(HasSubstr("'Adam', and this optimizer is 'SGD'")));
  EXPECT_THAT(made(Adam(0.1))->problems(made(SGD(0.1))->save()), ElementsAre(HasSubstr("'SGD'")));  // which has no tensors

  const auto same = made(spec_of("adam"));
  EXPECT_THAT(same->problems(of_adam), IsEmpty());
  EXPECT_THAT(same->save().tensors, IsEmpty());  // they are only looked at
  auto other = of_adam;
  other.tensors[0].second = torch::zeros({7});
  EXPECT_THAT(same->problems(other), ElementsAre(HasSubstr(other.tensors[0].first + "' has shape [7]")));
  other = of_adam;
  other.values["steps"] = "many";
  EXPECT_THAT(same->problems(other), ElementsAre(HasSubstr("'many'")));

  auto earlier = of_adam;  // when no kind was saved
  earlier.values.erase("kind");
  EXPECT_THAT(made(SGD(0.1))->problems(earlier), ElementsAre(HasSubstr("exp_avg_sq/first.weight")));
  EXPECT_THAT(same->problems(earlier), IsEmpty());
  same->restore(earlier);
  EXPECT_EQ(same->save().values, of_adam.values);
}

// LBFGS is not known by name: its state travels as LibTorch writes it.
TEST(OptimizerState, OfAnUnknownOptimizerIsLibTorchsArchive) {
  const auto make = [](std::vector<torch::Tensor>& made) {
    made = {torch::ones({2}).requires_grad_()};
    return std::make_unique<torch::optim::LBFGS>(made, torch::optim::LBFGSOptions(0.1).max_iter(2));
  };
  const auto step = [](torch::optim::LBFGS& optimizer, torch::Tensor& w) {
    optimizer.step([&] {
      w.mutable_grad().reset();
      const auto loss = (w * torch::tensor({1.0, 3.0})).square().sum() + w.sum();
      loss.backward();
      return loss;
    });
  };
  std::vector<torch::Tensor> a;
  std::vector<torch::Tensor> b;
  const auto first = make(a);
  const auto second = make(b);
  step(*first, a[0]);
  const auto state = get_optimizer_state(*first, {{"w", a[0]}});
  ASSERT_EQ(state.tensors.size(), 1U);
  EXPECT_EQ(state.tensors[0].first, "archive");
  set_optimizer_state(*second, {{"w", b[0]}}, state);
  b[0].data().copy_(a[0]);
  step(*first, a[0]);
  step(*second, b[0]);
  EXPECT_TRUE(a[0].equal(b[0]));
  EXPECT_THAT([&] { set_optimizer_state(*second, {{"w", b[0]}}, {}); }, ThrowsCode(ErrorCode::kInvalidArgument, "archive"));
}

TEST(SlotOptimizer, IsSavedAndLoadedByLibTorch) {
  for (const auto& kind : kKinds) {
    auto a = torch::ones({3}).requires_grad_();
    auto b = torch::ones({3}).requires_grad_();
    const auto step = [](torch::optim::Optimizer& optimizer, torch::Tensor& w) {
      w.mutable_grad() = w.detach() * 0.5 + 1;
      optimizer.step();
    };
    const auto first = spec_of(kind).make({a});
    step(*first, a);
    std::stringstream stream;
    torch::serialize::OutputArchive out;
    first->save(out);
    out.save_to(stream);
    const auto second = spec_of(kind).make({b});
    torch::serialize::InputArchive in;
    in.load_from(stream);
    second->load(in);
    b.data().copy_(a);
    step(*first, a);
    step(*second, b);
    EXPECT_TRUE(a.equal(b)) << kind;
  }
}

TEST(Optimizer, AccumulatedStepsAreOneOfTheirMean) {
  for (const int replicas : {1, 2}) {
    torch::manual_seed(1);
    MirroredStrategy strategy(cpus(replicas));
    const auto scope = strategy.scope();
    const auto model = mirrored<Net>();
    auto optimizer = lockstep::optimizer(model, SGD({.learning_rate = 0.1, .clipnorm = 0.2, .gradient_accumulation_steps = 2}));
    const auto before = weights_of(model.at(0));
    Net alone;
    for (std::size_t i = 0; i < before.size(); ++i) alone.parameters()[i].data().copy_(before[i]);
    train(strategy, model, optimizer, 0, 1);
    EXPECT_TRUE(are_equal(weights_of(model.at(0)), before));
    EXPECT_EQ(optimizer.iterations(), 0);
    train(strategy, model, optimizer, 1, 1);
    EXPECT_EQ(optimizer.iterations(), 1);
    ((alone.loss(batch(0)) + alone.loss(batch(1))) / 2).backward();
    for (auto& p : alone.parameters()) {
      const double norm = p.grad().norm().item<double>();
      p.data().sub_(p.grad() * std::min(1.0, 0.2 / norm), 0.1);
    }
    const auto wanted = weights_of(alone);
    const auto got = weights_of(model.at(0));
    for (std::size_t i = 0; i < wanted.size(); ++i) EXPECT_TRUE(torch::allclose(got[i], wanted[i], 1e-5, 1e-7)) << replicas;
  }
}

TEST(Optimizer, AScheduleGivesEveryStepItsRate) {
  torch::manual_seed(1);
  MirroredStrategy strategy(cpus(2));
  const auto scope = strategy.scope();
  const auto model = mirrored<Net>();
  auto optimizer =
      lockstep::optimizer(model, SGD(schedules::PiecewiseConstantDecay({.boundaries = {0}, .values = {0.5, 0.0}})));
  EXPECT_EQ(optimizer.learning_rate(), 0.5);
  train(strategy, model, optimizer, 0, 1);
  EXPECT_EQ(optimizer.learning_rate(), 0);
  const auto weights = weights_of(model.at(0));
  train(strategy, model, optimizer, 1, 2);
  EXPECT_TRUE(are_equal(weights_of(model.at(0)), weights));
  EXPECT_EQ(optimizer.iterations(), 3);
  EXPECT_THAT([&] { optimizer.set_learning_rate(1); }, ThrowsCode(ErrorCode::kInvalidArgument, "schedule"));
}

TEST(Optimizer, GivesDenseGradientsToThoseThatTakeNoSparseOnes) {
  for (const auto& kind : kKinds) {
    torch::manual_seed(1);
    MirroredStrategy strategy(cpus(2));
    const auto scope = strategy.scope();
    const auto table = mirrored_from([] { return torch::nn::Embedding(torch::nn::EmbeddingOptions(6, 2).sparse(true)); });
    auto optimizer = lockstep::optimizer(table, spec_of(kind));
    const auto before = table.at(0).weight.detach().clone();
    strategy.run([&](ReplicaContext& context) {
      table->forward(torch::tensor({1, 1 + context.local_replica_id()})).square().sum().backward();
      optimizer.step();
    });
    const auto changed = (table.at(0).weight != before).any(1);
    const bool all = kind == "adamw" || kind == "ftrl";  // those without a gradient, too: decay, and Keras's Ftrl begins at 0
    EXPECT_TRUE(changed.equal(torch::tensor({all, true, true, all, all, all}))) << kind;
    EXPECT_TRUE(table.at(0).weight.equal(table.at(1).weight)) << kind;
  }
}

}  // namespace
}  // namespace lockstep

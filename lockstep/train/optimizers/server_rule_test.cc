#include "lockstep/train/optimizers/server_rule.h"

#include <torch/torch.h>

#include "lockstep/train/optimizers/optimizers.h"
#include "lockstep/train/schedules/schedules.h"
#include "tests/support/testing.h"

namespace lockstep {
namespace {

using testing::ThrowsCode;

constexpr int kSteps = 20;
constexpr std::int64_t kRows = 50;

const std::vector<std::pair<std::string, OptimizerSpec>>& all_specs() {
  static const std::vector<std::pair<std::string, OptimizerSpec>> all = {
      {"sgd", SGD(0.1)},
      {"momentum", SGD({.learning_rate = 0.1, .momentum = 0.9})},
      {"nesterov", SGD({.learning_rate = 0.1, .momentum = 0.9, .nesterov = true})},
      {"adagrad", Adagrad(0.1)},
      {"adam", Adam(0.01)},
      {"amsgrad", Adam({.learning_rate = 0.01, .amsgrad = true})},
      {"adamw", AdamW(0.01)},
      {"rmsprop", RMSprop({.learning_rate = 0.01, .momentum = 0.5, .centered = true})},
      {"adadelta", Adadelta(1.0)},
      {"adamax", Adamax(0.01)},
      {"nadam", Nadam(0.01)},
      {"ftrl", Ftrl({.learning_rate = 0.1, .l1_regularization_strength = 0.01, .l2_regularization_strength = 0.02})},
      {"lion", Lion(0.01)},
      {"clipped", Adam({.learning_rate = 0.01, .clipnorm = 0.5})},
      {"scheduled", SGD({.learning_rate = schedules::CosineDecay({.initial_learning_rate = 0.1, .decay_steps = 15})})},
  };
  return all;
}

torch::Tensor initial() { return (torch::arange(kRows * 3).reshape({kRows, 3}) * 0.71).sin(); }
torch::Tensor gradient_of(int step) { return (torch::arange(kRows * 3).reshape({kRows, 3}) * 0.37 + step * 1.3).cos(); }
torch::Tensor ids_of(int step) { return (torch::arange(8) * (step + 3) * 7 + step).remainder(kRows); }  // some repeat
torch::Tensor rows_of(int step) { return (torch::arange(24).reshape({8, 3}) * 0.53 + step).sin(); }

// The optimizer itself, as a program of one process steps it.
class Alone {
 public:
  explicit Alone(const OptimizerSpec& spec, torch::Tensor w = initial())
      : spec_(spec), w_(w.requires_grad_()), optimizer_(spec.make({w_})) {}

  void step(torch::Tensor gradient) {
    optimizer_->param_groups()[0].options().set_lr(spec_.rules().learning_rate.at(steps_++));
    if (spec_.rules().clipnorm) gradient = gradient * std::min(1.0, *spec_.rules().clipnorm / gradient.norm().item<double>());
    w_.mutable_grad() = gradient;
    optimizer_->step();
  }
  torch::Tensor value() const { return w_.detach(); }

 private:
  OptimizerSpec spec_;
  torch::Tensor w_;
  std::unique_ptr<torch::optim::Optimizer> optimizer_;
  std::int64_t steps_ = 0;
};

TEST(ServerRule, IsLibTorchsOptimizerBitForBit) {
  for (const auto& [name, spec] : all_specs()) {
    if (name == "clipped") continue;
    Alone alone(spec);
    auto value = initial();
    const auto rule = make_server_rule(spec.to_text(), value);
    for (int step = 0; step < kSteps; ++step) {
      alone.step(gradient_of(step));
      rule->apply(value, gradient_of(step));
      ASSERT_TRUE(value.equal(alone.value())) << name << ", step " << step;
    }
    EXPECT_EQ(rule->steps(), kSteps);
    EXPECT_FALSE(value.equal(initial())) << name;
  }
}

TEST(ServerRule, ClipsWhatItGetsAndLeavesItAsItIs) {
  const auto& spec = all_specs()[13].second;
  Alone alone(spec);
  auto value = initial();
  const auto rule = make_server_rule(spec.to_text(), value);
  for (int step = 0; step < kSteps; ++step) {
    const auto gradient = gradient_of(step);
    alone.step(gradient_of(step));
    rule->apply(value, gradient);
    EXPECT_TRUE(torch::allclose(value, alone.value(), 1e-6, 1e-7));
    EXPECT_TRUE(gradient.equal(gradient_of(step)));
  }
}

// A table that is looked up with repeated ids, trained by LibTorch's own sparse gradients.
TEST(ServerRule, UsesRowsAsLibTorchUsesASparseGradient) {
  for (const auto& spec : {SGD(0.1), Adagrad(0.1), all_specs().back().second}) {
    torch::nn::Embedding table(torch::nn::EmbeddingOptions(kRows, 3).sparse(true));
    table->weight.data().copy_(initial());
    const auto optimizer = spec.make({table->weight});
    auto value = initial();
    const auto rule = make_server_rule(spec.to_text(), value);
    for (int step = 0; step < kSteps; ++step) {
      optimizer->zero_grad();
      optimizer->param_groups()[0].options().set_lr(spec.rules().learning_rate.at(step));
      (table->forward(ids_of(step)) * rows_of(step)).sum().backward();
      optimizer->step();
      rule->apply_rows(value, ids_of(step), rows_of(step));
      ASSERT_TRUE(value.equal(table->weight.detach())) << spec.kind() << ", step " << step;
    }
  }
}

// The same by LibTorch's own operations: each time a row is looked up its gradient is squared, and then all are applied.
TEST(ServerRule, AdagradSquaresWhatRepeatsOneByOne) {
  auto value = initial();
  const auto rule = make_server_rule(Adagrad(0.1).to_text(), value);
  auto wanted = initial();
  auto sum = torch::full_like(wanted, 0.1 + 1e-7);
  for (int step = 0; step < kSteps; ++step) {
    const auto ids = ids_of(step);
    sum.index_add_(0, ids, rows_of(step).square());
    wanted.index_add_(0, ids, rows_of(step) / sum.index_select(0, ids).sqrt() * -0.1);
    rule->apply_rows(value, ids, rows_of(step));
    ASSERT_TRUE(value.equal(wanted)) << step;
  }
}

// Every touched row is what the optimizer over this row alone would make of it, with the sum of what repeats; but the step
// counts all updates of the variable, as Keras's does. Where all rows are touched every time both are the same.
TEST(ServerRule, ChangesTheTouchedRowsOnly) {
  for (const auto& [name, spec] : all_specs()) {
    if (name == "sgd" || name == "adagrad" || name == "scheduled" || name == "clipped") continue;
    auto value = initial();
    const auto rule = make_server_rule(spec.to_text(), value);
    const auto ids = torch::tensor({41, 3, 17, 3}, torch::kLong);
    const auto touched = torch::tensor({3, 17, 41}, torch::kLong);
    Alone alone(spec, initial().index_select(0, touched));
    auto untouched = torch::ones({kRows}, torch::kBool);
    untouched.index_fill_(0, touched, false);
    for (int step = 0; step < kSteps; ++step) {
      const auto rows = rows_of(step).narrow(0, 0, 4);
      alone.step(torch::stack({rows[1] + rows[3], rows[2], rows[0]}));
      rule->apply_rows(value, ids, rows);
      ASSERT_TRUE(torch::allclose(value.index_select(0, touched), alone.value(), 1e-6, 1e-7)) << name << ", step " << step;
      ASSERT_TRUE(value.index({untouched}).equal(initial().index({untouched}))) << name;
    }
    const auto first = name == "ftrl" ? 0.1 : 0.0;
    for (const auto& [what, tensor] : rule->state().tensors) {
      ASSERT_EQ(tensor.sizes(), value.sizes());
      const auto begin = what == "accumulator" ? first : 0.0;
      EXPECT_TRUE((tensor.index({untouched}) == torch::tensor(begin, torch::kFloat)).all().item<bool>()) << name << " " << what;
    }
  }
}

TEST(ServerRule, MixesDenseGradientsAndRows) {
  for (const auto& [name, spec] : all_specs()) {
    if (name == "clipped") continue;
    Alone alone(spec);
    auto value = initial();
    const auto rule = make_server_rule(spec.to_text(), value);
    const auto every = torch::arange(kRows);
    for (int step = 0; step < 6; ++step) {  // all rows have a gradient each time
      alone.step(gradient_of(step));
      if (step % 2 == 0) rule->apply_rows(value, every, gradient_of(step));
      else rule->apply(value, gradient_of(step));
      ASSERT_TRUE(torch::allclose(value, alone.value(), 1e-6, 1e-7)) << name << ", step " << step;
    }
  }
}

TEST(ServerRule, GoesOnElsewhereBitForBit) {
  for (const auto& [name, spec] : all_specs()) {
    auto value = initial();
    const auto rule = make_server_rule(spec.to_text(), value);
    for (int step = 0; step < 5; ++step) rule->apply(value, gradient_of(step));
    auto copy = value.clone();
    const auto other = make_server_rule(spec.to_text(), copy);
    other->load_state(rule->state());
    EXPECT_EQ(other->steps(), 5);
    for (int step = 5; step < 10; ++step) {
      rule->apply(value, gradient_of(step));
      other->apply(copy, gradient_of(step));
      rule->apply_rows(value, ids_of(step), rows_of(step));
      other->apply_rows(copy, ids_of(step), rows_of(step));
      ASSERT_TRUE(value.equal(copy)) << name;
    }
  }
  auto value = initial();
  const auto adam = make_server_rule(Adam(0.1).to_text(), value);
  adam->apply(value, gradient_of(0));
  const auto lion = make_server_rule(Lion(0.1).to_text(), value);
  EXPECT_THAT([&] { lion->load_state(adam->state()); }, ThrowsCode(ErrorCode::kInvalidArgument, "exp_avg_sq"));
  auto state = adam->state();
  state.tensors[0].second = state.tensors[0].second.to(torch::kDouble);
  EXPECT_THAT([&] { adam->load_state(state); }, ThrowsCode(ErrorCode::kInvalidArgument, "exp_avg", "Double"));
}

TEST(ServerRule, DecaysTheTouchedRows) {
  for (const auto& spec :
       {SGD({.learning_rate = 0.1, .weight_decay = 0.5}), Ftrl({.learning_rate = 0.1, .weight_decay = 0.5})}) {
    auto value = torch::ones({4, 2});
    const auto rule = make_server_rule(spec.to_text(), value);
    rule->apply_rows(value, torch::tensor({2, 2}), torch::zeros({2, 2}));
    EXPECT_TRUE(value[0].equal(torch::ones({2})));
    EXPECT_NEAR(value[2][0].item<double>(), spec.kind() == "sgd" ? 0.95 : 0.0, 1e-6);  // Ftrl forgets what it never learned
  }
}

TEST(ServerRule, TakesNoRowsAtAllAndVariablesWithoutDimensions) {
  for (const auto& [name, spec] : all_specs()) {
    auto value = initial();
    const auto rule = make_server_rule(spec.to_text(), value);
    rule->apply_rows(value, torch::empty({0}, torch::kLong), torch::empty({0, 3}));
    EXPECT_TRUE(value.equal(initial())) << name;
    auto scalar = torch::ones({});
    const auto of_scalar = make_server_rule(spec.to_text(), scalar);
    of_scalar->apply(scalar, torch::ones({}));
    EXPECT_NE(scalar.item<double>(), 1.0) << name;
    auto empty = torch::ones({0, 2});
    const auto of_empty = make_server_rule(spec.to_text(), empty);
    of_empty->apply(empty, torch::ones({0, 2}));
    EXPECT_EQ(of_empty->steps(), 1);
  }
}

TEST(ServerRule, TakesAnotherRateUnlessAScheduleGivesIt) {
  auto value = torch::ones({2});
  const auto rule = make_server_rule(SGD(0.1).to_text(), value);
  rule->set_learning_rate(0.5);
  EXPECT_EQ(rule->learning_rate(), 0.5);
  rule->apply(value, torch::ones({2}));
  EXPECT_TRUE(value.equal(torch::full({2}, 0.5)));
  EXPECT_THAT([&] { rule->set_learning_rate(-1); }, ThrowsCode(ErrorCode::kInvalidArgument, "-1"));
  const auto scheduled = make_server_rule(all_specs().back().second.to_text(), value);
  EXPECT_THAT([&] { scheduled->set_learning_rate(1); }, ThrowsCode(ErrorCode::kInvalidArgument, "schedule"));
}

TEST(ServerRule, RefusesWhatAServerCannotDo) {
  const auto make = [](const OptimizerSpec& spec, torch::Tensor value = torch::ones({2})) {
    return [text = spec.to_text(), value] { make_server_rule(text, value); };
  };
  EXPECT_THAT(make(SGD({.global_clipnorm = 1})), ThrowsCode(ErrorCode::kUnimplemented, "global_clipnorm"));
  EXPECT_THAT(make(SGD({.use_ema = true})), ThrowsCode(ErrorCode::kUnimplemented, "use_ema"));
  EXPECT_THAT(make(SGD({.gradient_accumulation_steps = 2})), ThrowsCode(ErrorCode::kUnimplemented, "accumulation"));
  EXPECT_THAT(make(SGD(), torch::ones({2}, torch::kLong)), ThrowsCode(ErrorCode::kInvalidArgument, "float32"));
}

TEST(OptimizerText, IsTheSameOptimizerElsewhere) {
  for (const auto& [name, spec] : all_specs()) EXPECT_EQ(OptimizerSpec::from_text(spec.to_text()).to_text(), spec.to_text());
  EXPECT_EQ(SGD({.learning_rate = 0.1, .momentum = 0.9, .clipnorm = 1.5, .name = "mine"}).to_text(),
            R"({"kind":"sgd","options":{"momentum":0.9,"nesterov":false},"rules":{"learning_rate":0.1,"clipnorm":1.5,)"
            R"("use_ema":false,"ema_momentum":0.99,"name":"mine"}})");
  const auto changed = OptimizerSpec::from_text(AdamW(0.1).with_learning_rate(1.0 / 3).to_text());
  EXPECT_EQ(changed.rules().learning_rate.at(0), 1.0 / 3);
}

TEST(OptimizerText, HasTheSchedules) {
  const std::vector<LearningRate> rates = {
      schedules::ExponentialDecay({.initial_learning_rate = 0.3, .decay_steps = 7, .staircase = true}),
      schedules::InverseTimeDecay({.initial_learning_rate = 0.3, .decay_steps = 7}),
      schedules::PolynomialDecay({.initial_learning_rate = 0.3, .decay_steps = 7, .power = 2, .cycle = true}),
      schedules::CosineDecay({.initial_learning_rate = 0.0, .decay_steps = 9, .warmup_target = 0.2, .warmup_steps = 3}),
      schedules::CosineDecayRestarts({.initial_learning_rate = 0.3, .first_decay_steps = 4}),
      schedules::PiecewiseConstantDecay({.boundaries = {2, 5}, .values = {0.3, 0.2, 0.1}}),
      schedules::warm_up(schedules::CosineDecay({.initial_learning_rate = 0.3, .decay_steps = 9}), 4)};
  for (const auto& rate : rates) {
    const auto back = OptimizerSpec::from_text(SGD(rate).to_text()).rules().learning_rate;
    for (int step = 0; step < 20; ++step) EXPECT_EQ(back.at(step), rate.at(step));
  }
}

TEST(OptimizerText, OfWhatTextCannotDescribeIsRefused) {
  EXPECT_THAT([] { SGD([](std::int64_t) { return 0.1; }).to_text(); }, ThrowsCode(ErrorCode::kUnimplemented, "schedule"));
  const OptimizerSpec own("mine", {}, [](std::vector<at::Tensor> p, double rate) {
    return std::make_unique<torch::optim::SGD>(std::move(p), rate);
  });
  EXPECT_THAT([&] { own.to_text(); }, ThrowsCode(ErrorCode::kUnimplemented, "mine"));
}

TEST(OptimizerText, ThatIsNoneIsRefused) {
  const auto reads = [](std::string text) { return [text] { OptimizerSpec::from_text(text); }; };
  for (const auto* text :
       {"", "sgd", "[]", "{}", "null", R"({"kind":"sgd"})", R"({"kind":"sgd","options":{},"rules":[]})",
        R"({"kind":7,"options":{},"rules":{}})", R"({"kind":"sgd","options":{"momentum":"x"},"rules":{}})",
        R"({"kind":"sgd","options":{"momentum":9},"rules":{}})",
        R"({"kind":"sgd","options":{},"rules":{"learning_rate":{"schedule":"x"}}})",
        R"({"kind":"sgd","options":{},"rules":{"learning_rate":-1}})",
        R"({"kind":"sgd","options":{},"rules":{"learning_rate":{"schedule":"cosine_decay","decay_steps":0}}})"})
    EXPECT_THAT(reads(text), ThrowsCode(ErrorCode::kInvalidArgument)) << text;
  EXPECT_THAT(reads(R"({"kind":"sgd","options":{"momentun":0.9},"rules":{}})"),
              ThrowsCode(ErrorCode::kInvalidArgument, "did you mean 'momentum'"));
}

}  // namespace
}  // namespace lockstep

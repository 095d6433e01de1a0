#include "lockstep/train/optimizers/optimizers.h"

#include <ATen/ATen.h>
#include <torch/nn/module.h>
#include <torch/optim.h>

#include <cmath>
#include <map>

#include "lockstep/train/optimizer.h"
#include "lockstep/variable/mirrored.h"
#include "tests/oracle_runner/strategies.h"
#include "tests/oracle_runner/suites.h"
#include "tests/oracle_runner/values.h"

// Weights after each step of mirrored training: a linear model, or rows of a table.

namespace lockstep::oracle {
namespace {

constexpr std::size_t kSteps = 10;  // where the case does not say

struct LinearModel : torch::nn::Module {
  LinearModel(const at::Tensor& w_, const at::Tensor& b_)
      : w(register_parameter("w", w_.clone())), b(register_parameter("b", b_.clone())) {}
  at::Tensor w, b;
};

struct TableModel : torch::nn::Module {
  explicit TableModel(const at::Tensor& table_) : table(register_parameter("table", table_.clone())) {}
  at::Tensor table;
};

std::optional<double> optional_number(const Json& given, const char* key) {
  const auto value = get_or<Json>(given, key, nullptr);
  return value.is_null() ? std::nullopt : std::optional(value.get<double>());
}

std::optional<std::int64_t> optional_integer(const Json& given, const char* key) {
  const auto value = get_or<Json>(given, key, nullptr);
  return value.is_null() ? std::nullopt : std::optional(value.get<std::int64_t>());
}

// The spec with its own numbers by name, then what all share.
template <typename Options>
Options with_common(Options options, const Json& given) {
  if (given.contains("learning_rate")) options.learning_rate = given["learning_rate"].get<double>();
  if (given.contains("weight_decay")) options.weight_decay = optional_number(given, "weight_decay");
  options.clipnorm = optional_number(given, "clipnorm");
  options.clipvalue = optional_number(given, "clipvalue");
  options.global_clipnorm = optional_number(given, "global_clipnorm");
  options.use_ema = get_or(given, "use_ema", false);
  options.ema_momentum = get_or(given, "ema_momentum", 0.99);
  options.ema_overwrite_frequency = optional_integer(given, "ema_overwrite_frequency");
  options.gradient_accumulation_steps = optional_integer(given, "gradient_accumulation_steps");
  if constexpr (requires { options.beta_1; }) options.beta_1 = get_or(given, "beta_1", options.beta_1);
  if constexpr (requires { options.beta_2; }) options.beta_2 = get_or(given, "beta_2", options.beta_2);
  if constexpr (requires { options.epsilon; }) options.epsilon = get_or(given, "epsilon", options.epsilon);
  if constexpr (requires { options.amsgrad; }) options.amsgrad = get_or(given, "amsgrad", options.amsgrad);
  if constexpr (requires { options.rho; }) options.rho = get_or(given, "rho", options.rho);
  if constexpr (requires { options.momentum; }) options.momentum = get_or(given, "momentum", options.momentum);
  if constexpr (requires { options.nesterov; }) options.nesterov = get_or(given, "nesterov", options.nesterov);
  if constexpr (requires { options.centered; }) options.centered = get_or(given, "centered", options.centered);
  if constexpr (requires { options.initial_accumulator_value; })
    options.initial_accumulator_value = get_or(given, "initial_accumulator_value", options.initial_accumulator_value);
  if constexpr (requires { options.l1_regularization_strength; }) {
    options.learning_rate_power = get_or(given, "learning_rate_power", options.learning_rate_power);
    options.l1_regularization_strength = get_or(given, "l1_regularization_strength", 0.0);
    options.l2_regularization_strength = get_or(given, "l2_regularization_strength", 0.0);
    options.l2_shrinkage_regularization_strength = get_or(given, "l2_shrinkage_regularization_strength", 0.0);
    options.beta = get_or(given, "beta", 0.0);
  }
  return options;
}

OptimizerSpec make_spec(const Json& input) {
  const auto name = input.at("optimizer").get<std::string>();
  const auto& given = input.at("arguments");
  if (name == "SGD") return SGD(with_common(SGDOptions(), given));
  if (name == "Adam") return Adam(with_common(AdamOptions(), given));
  if (name == "AdamW") return AdamW(with_common(AdamWOptions(), given));
  if (name == "RMSprop") return RMSprop(with_common(RMSpropOptions(), given));
  if (name == "Adagrad") return Adagrad(with_common(AdagradOptions(), given));
  if (name == "Adadelta") return Adadelta(with_common(AdadeltaOptions(), given));
  if (name == "Adamax") return Adamax(with_common(AdamaxOptions(), given));
  if (name == "Nadam") return Nadam(with_common(NadamOptions(), given));
  if (name == "Ftrl") return Ftrl(with_common(FtrlOptions(), given));
  if (name == "Lion") return Lion(with_common(LionOptions(), given));
  throw NotApplicable("needs " + name);
}

bool is_sparse(const Json& input) { return input.contains("table"); }

std::size_t steps_of(const Case& one) {
  const auto& asked = one.asked();
  return asked.is_object() && asked.contains("steps") ? asked["steps"].size() : kSteps;
}

// Of these rows of x and y; divided by the number of all rows.
at::Tensor linear_loss(const LinearModel& model, const at::Tensor& x, const at::Tensor& y, double rows) {
  return (at::matmul(x, model.w) + model.b - y).square().sum() / rows;
}

at::Tensor table_loss(const TableModel& model, const at::Tensor& ids, double rows, bool sparse) {
  return at::embedding(model.table, ids, -1, false, sparse).square().sum() / rows;
}

Json linear_weights(const LinearModel& model) { return {{"w", to_json(model.w)}, {"b", to_json(model.b)}}; }

Json train_linear(const Case& one) {
  const int replicas = one.input.at("replicas").get<int>();
  const auto x = to_tensor(one.input.at("x"));
  const auto y = to_tensor(one.input.at("y"));
  auto& strategy = mirrored(replicas);
  const auto scope = strategy.scope();
  const auto model = lockstep::mirrored<LinearModel>(to_tensor(one.input.at("w")), to_tensor(one.input.at("b")));
  auto trainer = optimizer(model, make_spec(one.input));
  Json steps = Json::array();
  bool is_equal = true;
  for (std::size_t step = 0; step < steps_of(one); ++step) {
    strategy.run([&](ReplicaContext& context) {
      const auto mine = [&](const at::Tensor& all, std::int64_t dimensions) {
        return replicas == 1 ? all.flatten(0, dimensions) : all[context.local_replica_id()];
      };
      linear_loss(*model, mine(x, 1), mine(y, 1), static_cast<double>(y.numel())).backward();
      trainer.step();
    });
    for (std::size_t r = 1; r < model.size(); ++r)
      is_equal = is_equal && model.at(r).w.equal(model.at(0).w) && model.at(r).b.equal(model.at(0).b);
    steps.push_back(linear_weights(model.at(0)));
  }
  return {{"steps", steps}, {"replicas_agree", is_equal}, {"iterations", trainer.iterations()}};
}

Json train_table(const Case& one) {
  const int replicas = one.input.at("replicas").get<int>();
  const auto ids = to_tensor(one.input.at("ids")).to(at::kLong);
  auto& strategy = mirrored(replicas);
  const auto scope = strategy.scope();
  const auto model = lockstep::mirrored<TableModel>(to_tensor(one.input.at("table")));
  auto trainer = optimizer(model, make_spec(one.input));
  Json steps = Json::array();
  for (std::size_t step = 0; step < steps_of(one); ++step) {
    strategy.run([&](ReplicaContext& context) {
      const auto mine = replicas == 1 ? ids.flatten() : ids[context.local_replica_id()];
      table_loss(*model, mine, static_cast<double>(ids.numel()), /*sparse=*/true).backward();
      trainer.step();
    });
    steps.push_back(to_json(model.at(0).table));
  }
  return {{"steps", steps}};
}

// --- One process, LibTorch's optimizer, and what is done around it written out: what we compare with where Keras differs.

std::unique_ptr<torch::optim::Optimizer> plain_optimizer(const Json& input, const std::vector<at::Tensor>& parameters) {
  const auto name = input.at("optimizer").get<std::string>();
  const auto& given = input.at("arguments");
  const double rate = get_or(given, "learning_rate", 0.001);
  const auto betas = std::make_tuple(get_or(given, "beta_1", 0.9), get_or(given, "beta_2", 0.999));
  const double epsilon = get_or(given, "epsilon", 1e-7);
  const bool amsgrad = get_or(given, "amsgrad", false);
  if (name == "Adam")
    return std::make_unique<torch::optim::Adam>(parameters,
                                                torch::optim::AdamOptions(rate).betas(betas).eps(epsilon).amsgrad(amsgrad));
  if (name == "AdamW")
    return std::make_unique<torch::optim::AdamW>(
        parameters, torch::optim::AdamWOptions(rate).betas(betas).eps(epsilon).amsgrad(amsgrad).weight_decay(
                        get_or(given, "weight_decay", 0.004)));
  if (name == "RMSprop")
    return std::make_unique<torch::optim::RMSprop>(parameters, torch::optim::RMSpropOptions(rate)
                                                                   .alpha(get_or(given, "rho", 0.9))
                                                                   .eps(epsilon)
                                                                   .momentum(get_or(given, "momentum", 0.0))
                                                                   .centered(get_or(given, "centered", false)));
  return make_spec(input).make(parameters);  // clipping only: the formula itself is compared in other cases
}

void clip_plainly(const Json& given, const std::vector<at::Tensor>& parameters) {
  double all = 0;
  for (const auto& p : parameters) all += std::pow(p.grad().norm().item<double>(), 2);
  for (const auto& p : parameters) {
    auto gradient = p.grad();
    const auto scale = [&](double norm, double most) {
      if (norm > most) gradient.mul_(most / norm);
    };
    if (const auto most = optional_number(given, "clipnorm")) scale(gradient.norm().item<double>(), *most);
    if (const auto most = optional_number(given, "global_clipnorm")) scale(std::sqrt(all), *most);
    if (const auto most = optional_number(given, "clipvalue")) gradient.clamp_(-*most, *most);
  }
}

// Weights after each step; `loss` is that of the whole batch.
template <typename Loss, typename Show>
Json train_plainly(const Case& one, std::vector<at::Tensor> parameters, Loss loss, Show show) {
  const auto& given = one.input.at("arguments");
  const auto optimizer = plain_optimizer(one.input, parameters);
  const auto every = static_cast<std::size_t>(get_or(given, "gradient_accumulation_steps", 1));
  const auto decay = one.input.at("optimizer") == "AdamW" ? 0.0 : get_or(given, "weight_decay", 0.0);
  Json steps = Json::array();
  for (std::size_t step = 0; step < steps_of(one); ++step) {
    loss().backward();
    if ((step + 1) % every == 0) {
      const at::NoGradGuard no_grad;
      for (auto& p : parameters) p.mutable_grad().div_(static_cast<double>(every));
      clip_plainly(given, parameters);
      for (auto& p : parameters) p.mul_(1 - decay * get_or(given, "learning_rate", 0.001));
      optimizer->step();
      for (auto& p : parameters) p.mutable_grad().reset();
    }
    steps.push_back(show());
  }
  return steps;
}

Json plain_outcome(const Case& one) {
  if (is_sparse(one.input)) {
    TableModel model(to_tensor(one.input.at("table")));
    const auto ids = to_tensor(one.input.at("ids")).to(at::kLong).flatten();
    return {{"steps", train_plainly(
                          one, model.parameters(),
                          [&] { return table_loss(model, ids, static_cast<double>(ids.numel()), /*sparse=*/false); },
                          [&] { return to_json(model.table); })}};
  }
  LinearModel model(to_tensor(one.input.at("w")), to_tensor(one.input.at("b")));
  const auto x = to_tensor(one.input.at("x")).flatten(0, 1);
  const auto y = to_tensor(one.input.at("y")).flatten();
  auto steps = train_plainly(
      one, model.parameters(), [&] { return linear_loss(model, x, y, static_cast<double>(y.numel())); },
      [&] { return linear_weights(model); });
  const auto every = get_or(one.input.at("arguments"), "gradient_accumulation_steps", std::int64_t{1});
  return {{"steps", steps}, {"replicas_agree", true}, {"iterations", static_cast<std::int64_t>(steps_of(one)) / every}};
}

}  // namespace

Json answer_optimizers(const Case& one) { return is_sparse(one.input) ? train_table(one) : train_linear(one); }

std::optional<Difference> difference_in_optimizers(const Case& one) {
  if (!one.outcome.contains("expect")) return std::nullopt;  // what is refused, both refuse
  const auto name = one.input.at("optimizer").get<std::string>();
  const auto& given = one.input.at("arguments");
  const bool is_clipped = given.contains("clipnorm") || given.contains("clipvalue") || given.contains("global_clipnorm");
  std::string reason;
  if (name == "Adam" || name == "AdamW" || name == "RMSprop")
    reason = "LibTorch's own " + name + ", whose epsilon stands elsewhere in the formula";
  else if (is_clipped && one.input.at("replicas").get<int>() > 1)
    reason = "gradients are clipped after the sum over the replicas";
  if (reason.empty()) return std::nullopt;
  if (get_or(given, "use_ema", false)) throw NotApplicable("needs moving averages in the comparison");
  return Difference{reason, {{{"expect", plain_outcome(one)}}}};
}

}  // namespace lockstep::oracle

#include "lockstep/train/schedules/schedules.h"

#include "tests/oracle_runner/schedules.h"
#include "tests/oracle_runner/suites.h"
#include "tests/oracle_runner/values.h"

// Learning-rate schedules at many steps.

namespace lockstep::oracle {
namespace {

schedules::ExponentialDecayOptions decay_options(const Json& arguments) {
  return {.initial_learning_rate = arguments.at("initial_learning_rate").get<double>(),
          .decay_steps = arguments.at("decay_steps").get<std::int64_t>(),
          .decay_rate = arguments.at("decay_rate").get<double>(),
          .staircase = get_or(arguments, "staircase", false)};
}

LearningRate polynomial(const Json& arguments) {
  return schedules::PolynomialDecay({.initial_learning_rate = arguments.at("initial_learning_rate").get<double>(),
                                     .decay_steps = arguments.at("decay_steps").get<std::int64_t>(),
                                     .end_learning_rate = get_or(arguments, "end_learning_rate", 0.0001),
                                     .power = get_or(arguments, "power", 1.0),
                                     .cycle = get_or(arguments, "cycle", false)});
}

LearningRate cosine(const Json& arguments) {
  schedules::CosineDecayOptions options{.initial_learning_rate = arguments.at("initial_learning_rate").get<double>(),
                                        .decay_steps = arguments.at("decay_steps").get<std::int64_t>(),
                                        .alpha = get_or(arguments, "alpha", 0.0),
                                        .warmup_target = std::nullopt,
                                        .warmup_steps = get_or(arguments, "warmup_steps", std::int64_t{0})};
  if (arguments.contains("warmup_target") && !arguments["warmup_target"].is_null())
    options.warmup_target = arguments["warmup_target"].get<double>();
  return schedules::CosineDecay(options);
}

LearningRate cosine_restarts(const Json& arguments) {
  return schedules::CosineDecayRestarts({.initial_learning_rate = arguments.at("initial_learning_rate").get<double>(),
                                         .first_decay_steps = arguments.at("first_decay_steps").get<std::int64_t>(),
                                         .t_mul = get_or(arguments, "t_mul", 2.0),
                                         .m_mul = get_or(arguments, "m_mul", 1.0),
                                         .alpha = get_or(arguments, "alpha", 0.0)});
}

}  // namespace

LearningRate to_learning_rate(const Json& input) {
  const auto name = input.at("schedule").get<std::string>();
  const auto& arguments = input.at("arguments");
  if (name == "ExponentialDecay") return schedules::ExponentialDecay(decay_options(arguments));
  if (name == "InverseTimeDecay") return schedules::InverseTimeDecay(decay_options(arguments));
  if (name == "PolynomialDecay") return polynomial(arguments);
  if (name == "CosineDecay") return cosine(arguments);
  if (name == "CosineDecayRestarts") return cosine_restarts(arguments);
  if (name == "PiecewiseConstantDecay")
    return schedules::PiecewiseConstantDecay({.boundaries = arguments.at("boundaries").get<std::vector<std::int64_t>>(),
                                              .values = arguments.at("values").get<std::vector<double>>()});
  throw NotApplicable("needs " + name);
}

Json answer_schedules(const Case& one) {
  const auto rate = to_learning_rate(one.input);
  std::vector<double> values;
  for (const auto& step : one.input.at("steps")) values.push_back(rate.at(step.get<std::int64_t>()));
  return {{"values", to_json(at::tensor(values, at::kDouble).to(at::kFloat))}};
}

}  // namespace lockstep::oracle

#include <algorithm>

#include "lockstep/train/schedules/names.h"
#include "tests/oracle_runner/schedules.h"
#include "tests/oracle_runner/suites.h"
#include "tests/oracle_runner/values.h"

// Learning-rate schedules at many steps.

namespace lockstep::oracle {
namespace {

// What Keras's configuration says, as arguments of ours.
schedules::Arguments to_arguments(const Json& given) {
  schedules::Arguments arguments;
  for (const auto& [name, value] : given.items()) {
    if (value.is_array()) arguments.emplace(name, value.get<std::vector<double>>());
    else if (value.is_boolean()) arguments.emplace(name, value.get<bool>());
    else if (value.is_number()) arguments.emplace(name, value.get<double>());
  }
  return arguments;
}

}  // namespace

LearningRate to_learning_rate(const Json& input) {
  const auto name = input.at("schedule").get<std::string>();
  if (std::ranges::count(schedules::schedule_names(), name) == 0) throw NotApplicable("needs " + name);
  return schedules::schedule_by_name(name, to_arguments(input.at("arguments")));
}

Json answer_schedules(const Case& one) {
  const auto rate = to_learning_rate(one.input);
  std::vector<double> values;
  for (const auto& step : one.input.at("steps")) values.push_back(rate.at(step.get<std::int64_t>()));
  return {{"values", to_json(at::tensor(values, at::kDouble).to(at::kFloat))}};
}

}  // namespace lockstep::oracle

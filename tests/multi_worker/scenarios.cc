#include "tests/multi_worker/scenarios.h"

#include <torch/torch.h>

#include <chrono>
#include <iostream>

#include "lockstep/base/error.h"
#include "lockstep/base/str.h"

namespace lockstep::testing {

Parameters::Parameters(const std::vector<std::string>& words) {
  for (const auto& word : words) {
    const auto equals = word.find('=');
    if (equals == std::string::npos) throw Error(ErrorCode::kInvalidArgument, str("'", word, "' is not key=value"));
    values_[word.substr(0, equals)] = word.substr(equals + 1);
  }
}

std::string Parameters::text(const std::string& name, const std::string& otherwise) const {
  const auto found = values_.find(name);
  return found == values_.end() ? otherwise : found->second;
}

int Parameters::number(const std::string& name, int otherwise) const {
  const auto word = text(name, "");
  return word.empty() ? otherwise : std::stoi(word);
}

MultiWorkerOptions options_of(const Parameters& parameters) {
  MultiWorkerOptions options;
  options.devices = {parameters.text("device", "CPU:0")};
  options.replicas_per_device = parameters.number("replicas", 1);
  options.engine = parameters.text("engine", "auto");
  options.intra_op_threads = 1;
  options.deterministic = parameters.number("deterministic", 1) == 1;
  if (const auto seconds = parameters.text("timeout", ""); !seconds.empty())
    options.communication.timeout_seconds = std::stod(seconds);
  if (const auto seconds = parameters.text("stall", ""); !seconds.empty())
    options.stall_warning = std::chrono::milliseconds(static_cast<int>(std::stod(seconds) * 1000));
  options.join_timeout = std::chrono::seconds(parameters.number("join", 60));
  return options;
}

void run_scenario(const std::string& name, const Parameters& parameters) {
  if (name == "train") return train(parameters);
  if (name == "collectives") return collectives(parameters);
  if (name == "errors") return errors(parameters);
  if (name == "cases") return cases(parameters);
  if (name == "misbehave") return misbehave(parameters);
  if (name == "go_on") return go_on(parameters);
  if (name == "outside_writes") return outside_writes(parameters);
  if (name == "fit") return fit(parameters);
  if (name == "preempted") return preempted(parameters);
  if (name == "tensors") return tensors(parameters);
  throw Error(ErrorCode::kInvalidArgument, str("there is no scenario '", name, "'"));
}

}  // namespace lockstep::testing

#include <cstdlib>
#include <sstream>

#include "lockstep/base/str.h"
#include "lockstep/cluster/roles.h"
#include "lockstep/cluster/tf_config_cluster_resolver.h"
#include "tests/fuzz/fuzz.h"
#include "tools/lockstep/arguments.h"

// A command line, a word a line, up to the plan: whatever is accepted must be a cluster that its own tasks accept.

namespace lockstep::tool {
namespace {

constexpr std::size_t kMostTasks = 64;  // each knows all: more only take time

void check(const PlannedTask& planned) {
  const TFConfigClusterResolver resolver({.variables = Environment::of(planned.environment)});
  if (resolver.task_type() != planned.task.type || resolver.task_id() != planned.task.index) std::abort();
  validate_cluster_spec(resolver.cluster_spec(), resolver.task_type(), resolver.task_id());
  for (const auto& [name, value] : planned.environment)
    if (!is_planned_variable(name)) std::abort();
}

void plan(const std::vector<std::string>& words) {
  const auto arguments = parse_arguments(words);
  if (arguments.command != Arguments::Command::kRun) return;
  const auto shape = shape_of(arguments.run);
  std::vector<std::vector<int>> ports;
  std::size_t count = 0;
  for (const auto& tasks : place_tasks(shape)) {
    ports.emplace_back(tasks.size(), 1);
    count += tasks.size();
  }
  if (count > kMostTasks) return;
  const auto planned = plan_tasks(shape, ports, {.run_id = arguments.run.run_id, .master_port = arguments.run.master_port});
  try {
    for (const auto& node : planned)
      for (const auto& task : node) check(task);
  } catch (const Error&) {
    std::abort();  // accepted, but not as what it is
  }
}

}  // namespace
}  // namespace lockstep::tool

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  return lockstep::fuzz::expect_typed_errors(data, size, [](const std::string& text) {
    std::vector<std::string> words;
    std::istringstream in(text);
    for (std::string word; std::getline(in, word);) words.push_back(word);
    lockstep::tool::plan(words);
  });
}

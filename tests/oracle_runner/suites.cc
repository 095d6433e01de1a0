#include "tests/oracle_runner/suites.h"

namespace lockstep::oracle {
namespace {

const std::vector<Suite> kSuites = {
    {"autoshard", answer_autoshard, difference_in_autoshard},
    {"contexts", answer_contexts, difference_in_contexts},
    {"coordinator", answer_coordinator, difference_in_coordinator},
    {"dataset_ops", answer_dataset_ops, difference_in_dataset_ops},
    {"losses", answer_losses},
    {"metrics", answer_metrics},
    {"multi_worker", answer_multi_worker, difference_in_multi_worker},
    {"optimizers", answer_optimizers, difference_in_optimizers},
    {"partitioners", answer_partitioners, difference_in_partitioners},
    {"rebatch", answer_rebatch, difference_in_rebatch},
    {"records", answer_records, difference_in_records},
    {"reduce", answer_reduce, difference_in_reduce},
    {"schedules", answer_schedules},
    {"sharded_variable", answer_sharded_variable, difference_in_sharded_variable},
    {"tf_config", answer_tf_config},
    {"v1", answer_v1, difference_in_v1},
    {"variables", answer_variables, difference_in_variables},
};

}  // namespace

Suite suite_of(const std::string& file) {
  for (const auto& suite : kSuites)
    if (suite.file == file) return suite;
  return {file, refuse};
}

Json refuse(const Case& one) {
  // What the cases of a file share; then what they call the thing under test.
  static const std::map<std::string, std::string> owners = {
      {"multi_worker", "MultiWorkerMirroredStrategy: "}, {"sharded_variable", "ShardedVariable: "}, {"v1", "compat::v1: "}};
  const auto owner = owners.find(one.file);
  const auto prefix = "needs " + (owner == owners.end() ? "" : owner->second);
  for (const char* key : {"api", "call", "optimizer", "metric", "loss", "schedule", "partitioner", "reader"})
    if (one.input.contains(key) && one.input[key].is_string()) throw NotApplicable(prefix + one.input[key].get<std::string>());
  throw NotApplicable(prefix + (one.input.contains("num_workers") ? "sharding over workers" : "a handler for this file"));
}

}  // namespace lockstep::oracle

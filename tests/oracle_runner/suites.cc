#include "tests/oracle_runner/suites.h"

namespace lockstep::oracle {
namespace {

const std::vector<Suite> kSuites = {
    {"autoshard", answer_autoshard},
    {"contexts", answer_contexts, difference_in_contexts},
    {"dataset_ops", answer_dataset_ops, difference_in_dataset_ops},
    {"losses", answer_losses},
    {"rebatch", answer_rebatch, difference_in_rebatch},
    {"reduce", answer_reduce, difference_in_reduce},
    {"tf_config", answer_tf_config},
    {"variables", answer_variables, difference_in_variables},
};

}  // namespace

Suite suite_of(const std::string& file) {
  for (const auto& suite : kSuites)
    if (suite.file == file) return suite;
  return {file, refuse};
}

Json refuse(const Case& one) {
  // What the files call the thing under test.
  for (const char* key : {"api", "call", "loss", "metric", "optimizer", "schedule", "partitioner", "reader"})
    if (one.input.contains(key) && one.input[key].is_string()) throw NotApplicable("needs " + one.input[key].get<std::string>());
  if (one.input.contains("num_workers")) throw NotApplicable("needs sharding over workers");
  throw NotApplicable("needs a handler for this file");
}

}  // namespace lockstep::oracle

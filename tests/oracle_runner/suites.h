#pragma once

#include <map>
#include <optional>
#include <string>

#include "tests/oracle_runner/case.h"

// The handlers of the oracle files, one source file each. To add one: declare its two functions here and enter it in
// suites.cc.

namespace lockstep::oracle {

Json answer_autoshard(const Case& one);
std::optional<Difference> difference_in_autoshard(const Case& one);
Json answer_contexts(const Case& one);
std::optional<Difference> difference_in_contexts(const Case& one);
Json answer_coordinator(const Case& one);
std::optional<Difference> difference_in_coordinator(const Case& one);
Json answer_dataset_ops(const Case& one);
std::optional<Difference> difference_in_dataset_ops(const Case& one);
Json answer_losses(const Case& one);
Json answer_metrics(const Case& one);
Json answer_multi_worker(const Case& one);
std::optional<Difference> difference_in_multi_worker(const Case& one);
Json answer_optimizers(const Case& one);
std::optional<Difference> difference_in_optimizers(const Case& one);
Json answer_partitioners(const Case& one);
std::optional<Difference> difference_in_partitioners(const Case& one);
Json answer_rebatch(const Case& one);
std::optional<Difference> difference_in_rebatch(const Case& one);
Json answer_records(const Case& one);
std::optional<Difference> difference_in_records(const Case& one);
Json answer_reduce(const Case& one);
std::optional<Difference> difference_in_reduce(const Case& one);
Json answer_schedules(const Case& one);
Json answer_sharded_variable(const Case& one);
std::optional<Difference> difference_in_sharded_variable(const Case& one);
Json answer_tf_config(const Case& one);
const std::map<std::string, Json (*)(const Case&)>& cluster_apis();  // the part of tf_config that is about clusters
Json answer_v1(const Case& one);
std::optional<Difference> difference_in_v1(const Case& one);
Json answer_variables(const Case& one);
std::optional<Difference> difference_in_variables(const Case& one);

// "needs <what the input asks for>", for files and apis without a handler.
[[noreturn]] Json refuse(const Case& one);

// The answer of the handler that the table has for input["api"] ("" when the input has none).
template <typename Table>
Json call_api(const Table& apis, const Case& one) {
  const auto found = apis.find(get_or<std::string>(one.input, "api", ""));
  if (found == apis.end()) refuse(one);
  return found->second(one);
}

}  // namespace lockstep::oracle

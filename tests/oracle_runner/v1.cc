#include <map>
#include <sstream>

#include "lockstep/data/options.h"
#include "tests/oracle_runner/suites.h"

// What input functions are told. compat::v1 itself has no handler yet.

namespace lockstep::oracle {
namespace {

Json per_replica_batch_size(const Case& one) {
  InputContext context;
  context.num_replicas_in_sync = one.input.at("num_replicas_in_sync").get<int>();
  return {{"value", context.get_per_replica_batch_size(one.input.at("global_batch_size").get<std::int64_t>())}};
}

// The defaults, and the printed form of the generator's pipeline 2 of 3.
Json input_context(const Case&) {
  const InputContext context;
  std::ostringstream text;
  text << InputContext{.num_input_pipelines = 3, .input_pipeline_id = 2};
  return {{"num_input_pipelines", context.num_input_pipelines},
          {"input_pipeline_id", context.input_pipeline_id},
          {"num_replicas_in_sync", context.num_replicas_in_sync},
          {"text", text.str()}};
}

}  // namespace

Json answer_v1(const Case& one) {
  static const std::map<std::string, Json (*)(const Case&)> apis = {{"get_per_replica_batch_size", per_replica_batch_size},
                                                                    {"InputContext", input_context}};
  return call_api(apis, one);
}

}  // namespace lockstep::oracle

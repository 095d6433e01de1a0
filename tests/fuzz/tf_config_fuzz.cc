#include "lockstep/cluster/roles.h"
#include "lockstep/cluster/tf_config_cluster_resolver.h"
#include "tests/fuzz/fuzz.h"

using lockstep::fuzz::expect_typed_errors;

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  const auto ask = [&](auto question) {
    expect_typed_errors(data, size, [&](const std::string& text) {
      question(lockstep::TFConfigClusterResolver({.variables = lockstep::Environment::of({{"TF_CONFIG", text}})}));
    });
  };
  using Resolver = lockstep::TFConfigClusterResolver;
  ask([](const Resolver& resolver) { resolver.task_type(); });
  ask([](const Resolver& resolver) { resolver.task_id(); });
  ask([](const Resolver& resolver) { resolver.rpc_layer(); });
  ask([](const Resolver& resolver) { resolver.master(); });
  ask([](const Resolver& resolver) { is_chief(resolver.cluster_spec(), resolver.task_type(), resolver.task_id()); });
  return 0;
}

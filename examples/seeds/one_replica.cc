#include "one_replica.h"

#include "page.h"

namespace seeds {

void one_variable() {
  ls::MirroredStrategy strategy({"CPU:0"});  // without a name: every GPU, else the CPU
  std::optional<ls::Variable> mirrored_variable;
  {
    auto scope = strategy.scope();
    mirrored_variable.emplace(1.0);
  }
  shows(*mirrored_variable, R"(MirroredVariable:{
  0: <Variable 'Variable' shape=(), dtype=float32, value=1.0>
})");
  ls::Variable regular_variable(1.0);
  shows(regular_variable, "<Variable 'Variable' shape=(), dtype=float32, value=1.0>");
}

void run_one_with_a_constant() {
  ls::MirroredStrategy strategy({"CPU:0"});
  auto tensor_input = torch::tensor(3.0f);
  const auto replica_fn = [](torch::Tensor input) { return input * 2.0; };
  auto result = strategy.run(replica_fn, tensor_input);
  shows(result, "PerReplica:{\n  0: <Tensor: shape=(), dtype=float32, value=6.0>\n}");
}

void run_one_with_distributed_values() {
  ls::MirroredStrategy strategy({"CPU:0"});
  const auto run = [&] {
    auto distributed_values = strategy.experimental_distribute_values_from_function(
        [](const ls::ValueContext& value_context) { return value_context.num_replicas_in_sync; });
    return strategy.run([](int input) { return input * 2; }, distributed_values);
  };
  shows(run(), "PerReplica:{\n  0: 2\n}");
}

}  // namespace seeds

// The page of tf.compat.v1.distribute.MirroredStrategy (TensorFlow 2.2). Its block on iterators is in mirrored_v1_iterators.cc.
#include "loops.h"
#include "one_replica.h"
#include "page.h"

using namespace seeds;

namespace {

// A function that makes a variable when it is called first. Nothing is traced: it is a function like any other.
void create_variable_in_a_function() {
  std::vector<ls::Variable> x;
  const auto create_variable = [&] {
    if (x.empty()) x.emplace_back(1.0);
  };
  ls::MirroredStrategy strategy({"CPU:0"});
  auto scope = strategy.scope();
  create_variable();
  create_variable();
  expect(x.size() == 1);
  shows(x[0], R"(MirroredVariable:{
  0: <Variable 'Variable' shape=(), dtype=float32, value=1.0>
})");
}

void input_function() {
  ls::MirroredStrategy strategy({"CPU:0", "CPU:1"});
  auto inputs = strategy.experimental_distribute_datasets_from_function(batches_of_ones);
  const auto replica_fn = [](torch::Tensor batch) { return batch.sum(); };
  int steps = 0;
  for (auto batch : inputs) {
    auto replica_results = strategy.run(replica_fn, batch);
    expect(strategy.reduce("sum", replica_results).item<float>() == kGlobalBatchSize);
    if (++steps == 3) break;  // the input has no end
  }
}

// What the page says with a signature of the iterator's elements, a parameter's type says.
void iterator_of_an_input_function() {
  ls::MirroredStrategy strategy({"CPU:0", "CPU:1"});
  auto inputs = strategy.experimental_distribute_datasets_from_function(batches_of_ones);
  auto iterator = inputs.make_iterator();
  const auto replica_fn_with_signature = [](torch::Tensor inputs) {
    expect(inputs.scalar_type() == torch::kFloat && inputs.dim() == 3);
  };
  const int steps = 3;
  for (int step = 0; step < steps; ++step) strategy.run(replica_fn_with_signature, iterator.get_next());
}

}  // namespace

int main() {
  return run_blocks({{"mirrored_v1_01", one_variable},
                     {"mirrored_v1_02", create_variable_in_a_function},
                     {"mirrored_v1_03", train_epochs},
                     {"mirrored_v1_04", read_record_files},
                     {"mirrored_v1_05", read_record_files_with_a_signature},
                     {"mirrored_v1_06", input_function},
                     {"mirrored_v1_07", iterator_of_an_input_function},
                     {"mirrored_v1_08", rows_of_an_array},
                     {"mirrored_v1_10", run_one_with_a_constant},
                     {"mirrored_v1_11", run_one_with_distributed_values}});
}

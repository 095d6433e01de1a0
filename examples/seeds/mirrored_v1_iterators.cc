// The block on iterators of the page of tf.compat.v1.distribute.MirroredStrategy (TensorFlow 2.2), and the methods of that page
// that it shows no code for.
#include "page.h"

using namespace seeds;

namespace {

void iterator_of_an_input_function() {
  // [iterator]
  ls::compat::v1::MirroredStrategy strategy({"CPU:0", "CPU:1"});
  const auto replica_fn = [](torch::Tensor batch) { return batch.sum(); };
  auto scope = strategy.scope();
  auto iterator = strategy.make_input_fn_iterator(batches_of_ones);
  iterator.initialize();
  auto replica_results = strategy.experimental_run(replica_fn, iterator);
  shows(strategy.reduce(ls::ReduceOp::kSum, replica_results), "<Tensor: shape=(), dtype=float32, value=8.0>");
  // [iterator]
}

void iterator_of_a_dataset() {
  ls::compat::v1::MirroredStrategy strategy({"CPU:0", "CPU:1"});
  auto dataset = strategy.experimental_make_numpy_dataset(torch::arange(6)).batch(4);
  auto iterator = strategy.make_dataset_iterator(dataset);
  for (int pass = 0; pass < 2; ++pass) {
    iterator.initialize();
    auto sums = strategy.experimental_run([](torch::Tensor rows) { return rows.sum(); }, iterator);
    shows(strategy.reduce("sum", sums), "<Tensor: shape=(), dtype=int64, value=6>");
  }
  shows(iterator.get_next()[1][0], "<Tensor: shape=(1,), dtype=int64, value=[5]>");
}

void configuration() {
  ls::compat::v1::MirroredStrategy strategy({"CPU:0"});
  const ls::compat::v1::ConfigProto config;
  expect(strategy.update_config_proto(config).isolate_session_state && !config.isolate_session_state);
}

}  // namespace

int main() {
  return run_blocks({{"mirrored_v1_09", iterator_of_an_input_function},
                     {"make_dataset_iterator", iterator_of_a_dataset},
                     {"update_config_proto", configuration}});
}

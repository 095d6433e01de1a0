// The blocks on logical devices of the page of tf.distribute.Strategy (TensorFlow 2.3). The page's cores of a TPU are parts of
// the CPU here.
#include "page.h"

using namespace seeds;

namespace {

std::vector<std::string> cpus(int count) {
  std::vector<std::string> names;
  for (int i = 0; i < count; ++i) names.push_back("CPU:" + std::to_string(i));
  return names;
}

void expect_close(const torch::Tensor& value, const torch::Tensor& other) { expect(torch::allclose(value, other, 1e-5, 1e-6)); }

// Four replicas with two logical devices each.
void assign_to_a_device() {
  const auto topology = ls::Topology::of_devices(8, /*cores_per_chip=*/2);
  const auto device_assignment = ls::DeviceAssignment::build(topology, {.computation_shape = {1, 1, 1, 2}, .num_replicas = 4});
  ls::MirroredStrategy strategy(cpus(8), {.device_assignment = device_assignment});
  auto inputs = strategy.experimental_distribute_dataset(ls::data::Dataset::range(8).batch(8));
  auto iterator = inputs.make_iterator();

  const auto step_fn = [&](torch::Tensor inputs) {
    auto output = inputs + inputs;
    // What is computed with it is computed on logical device 0.
    return strategy.experimental_assign_to_logical_device(output, 0);
  };

  auto result = strategy.run(step_fn, iterator.get_next());
  expect(strategy.num_replicas_in_sync() == 4);
  shows(strategy.gather(result, /*axis=*/0), "<Tensor: shape=(8,), dtype=int64, value=[0, 2, 4, 6, 8, 10, 12, 14]>");
}

// A model of pixels, and its loss. What it gives is the same wherever the parts of its input are.
torch::Tensor model(const torch::Tensor& images) { return (images * images).mean({1, 2, 3}); }
torch::Tensor loss_fn(const torch::Tensor& labels, const torch::Tensor& output) { return (labels - output).square().sum(); }

// The page has two logical devices a replica and cuts the images for eight; here they are cut for two.
void replicate_to_all_devices() {
  const auto topology = ls::Topology::of_devices(8, /*cores_per_chip=*/2);
  const auto device_assignment = ls::DeviceAssignment::build(topology, {.computation_shape = {1, 1, 1, 2}, .num_replicas = 4});
  ls::MirroredStrategy strategy(cpus(8), {.device_assignment = device_assignment});
  const auto all_images = torch::rand({8, 4, 8, 3}), all_labels = torch::rand({8});
  auto dataset = ls::data::Dataset::from_tensor_slices({all_images, all_labels}).batch(8);
  auto inputs = strategy.experimental_distribute_dataset(dataset);
  auto iterator = inputs.make_iterator();

  const auto step_fn = [&](torch::Tensor images, torch::Tensor labels) {
    images = strategy.experimental_split_to_logical_devices(images, {1, 2, 1, 1});
    auto output = model(images);  // on both logical devices, each with half of every image
    // For the loss both have all outputs and labels.
    labels = strategy.experimental_replicate_to_logical_devices(labels);
    output = strategy.experimental_replicate_to_logical_devices(output);
    return loss_fn(labels, output);
  };

  auto losses = strategy.run(step_fn, iterator.get_next());
  expect_close(strategy.reduce("sum", losses), loss_fn(all_labels, model(all_images)));
}

// One replica with eight logical devices: a cube of four chips with two cores each.
void split_over_devices() {
  // [split]
  std::vector<ls::Coordinates> cube;
  for (int device = 0; device < 8; ++device) cube.push_back({0, device / 4, device / 2 % 2, device % 2});
  const ls::Topology topology({.mesh_shape = {1, 2, 2, 2}, .device_coordinates = {cube}});
  const auto device_assignment = ls::DeviceAssignment::build(topology, {.computation_shape = {1, 2, 2, 2}, .num_replicas = 1});
  ls::MirroredStrategy strategy(cpus(8), {.device_assignment = device_assignment});
  const auto images = torch::rand({2, 4, 8, 3});
  auto inputs = strategy.experimental_distribute_dataset(ls::data::Dataset::from_tensor_slices(images).batch(2));
  auto iterator = inputs.make_iterator();

  const auto step_fn = [&](torch::Tensor inputs) {
    inputs = strategy.experimental_split_to_logical_devices(inputs, {1, 2, 4, 1});
    return model(inputs);  // on eight logical devices, each with an eighth of every image
  };

  auto outputs = strategy.run(step_fn, iterator.get_next());
  // [split]
  expect(strategy.num_replicas_in_sync() == 1);
  expect_close(strategy.gather(outputs, /*axis=*/0), model(images));
}

// What the page's ValueError is about.
void what_is_refused() {
  const auto topology = ls::Topology::of_devices(4, /*cores_per_chip=*/2);
  const auto device_assignment = ls::DeviceAssignment::build(topology, {.computation_shape = {1, 1, 1, 2}, .num_replicas = 2});
  ls::MirroredStrategy strategy(cpus(4), {.device_assignment = device_assignment});
  const auto expect_refused = [&](const std::function<torch::Tensor(torch::Tensor)>& annotate) {
    std::optional<ls::ErrorCode> code;
    try {
      strategy.run([&] { annotate(torch::ones({4, 3})); });
    } catch (const ls::Error& error) {
      code = error.code();
    }
    expect(code == ls::ErrorCode::kInvalidArgument);
  };
  expect_refused([&](torch::Tensor x) { return strategy.experimental_assign_to_logical_device(x, 2); });       // there are 0 and 1
  expect_refused([&](torch::Tensor x) { return strategy.experimental_split_to_logical_devices(x, {2}); });     // two dimensions
  expect_refused([&](torch::Tensor x) { return strategy.experimental_split_to_logical_devices(x, {2, 2}); });  // two devices
  expect_refused([&](torch::Tensor x) { return strategy.experimental_split_to_logical_devices(x, {1, 2}); });  // 3 columns
}

}  // namespace

int main() {
  return run_blocks({{"strategy_03", assign_to_a_device},
                     {"strategy_14", replicate_to_all_devices},
                     {"strategy_15", split_over_devices},
                     {"what is refused", what_is_refused}});
}

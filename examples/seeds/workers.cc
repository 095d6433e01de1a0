#include "workers.h"

namespace seeds {
namespace {

// Random rows and labels; the worker repeats them for ever.
ls::data::Dataset dataset_fn(const ls::InputContext&) {
  auto x = torch::rand({2, 5});
  auto y = torch::randint(2, {2}, torch::kLong);
  return ls::data::Dataset::from_tensor_slices({x, y}).repeat().batch(1, /*drop_remainder=*/true);
}

// Whatever every worker saw, all replicas of all workers have the same weights.
void expect_equal_everywhere(ls::Strategy& strategy, const std::function<torch::Tensor()>& weight) {
  const auto rows = strategy.gather(strategy.run([&] { return weight().detach().flatten().unsqueeze(0); }), /*axis=*/0);
  expect(rows.size(0) == strategy.num_replicas_in_sync());
  expect(torch::equal(rows, rows[0].expand_as(rows)) && rows.isfinite().all().item<bool>());
}

}  // namespace

// Worker 0 of two.
void what_tf_config_says() {
  const auto environment = ls::Environment::of({{"TF_CONFIG", R"({"cluster": {"worker": ["localhost:12345", "localhost:23456"]},
                                                                  "task": {"type": "worker", "index": 0}})"}});
  const ls::TFConfigClusterResolver resolver({.variables = environment});
  expect(resolver.cluster_spec() == ls::ClusterSpec({{"worker", {"localhost:12345", "localhost:23456"}}}));
  expect(resolver.task_type() == "worker" && resolver.task_id() == 0);
}

void fit_on_all_workers(ls::Strategy& strategy) {
  auto scope = strategy.scope();
  auto net = ls::mirrored<torch::nn::Sequential>(torch::nn::Linear(5, 2));
  ls::Model model(net);
  auto dist_dataset = strategy.distribute_datasets_from_function(dataset_fn);
  model.compile({.optimizer = ls::SGD(0.1), .loss = ls::sparse_categorical_crossentropy({.from_logits = true})});
  const auto history = model.fit(dist_dataset, {.steps_per_epoch = 4, .verbose = ls::Verbose::kSilent});
  expect(std::isfinite(history.at("loss").at(0)));
  expect_equal_everywhere(strategy, [&] { return net->parameters()[0]; });
}

void train_on_all_workers(ls::Strategy& strategy) {
  auto scope = strategy.scope();
  auto model = ls::mirrored<torch::nn::Sequential>(torch::nn::Linear(5, 2));
  auto optimizer = ls::optimizer<torch::optim::SGD>(model, 0.1);
  auto dist_dataset = strategy.distribute_datasets_from_function(dataset_fn);
  auto iterator = dist_dataset.make_iterator();

  const auto train_step = [&](ls::DistributedIterator& iterator) {
    const auto step_fn = [&](torch::Tensor features, torch::Tensor labels) {
      auto logits = model->forward(features);
      auto loss = torch::cross_entropy_loss(logits, labels);
      loss.backward();
      optimizer.step();  // with the sum of all replicas' gradients
    };
    strategy.run(step_fn, iterator.get_next());
  };

  const int num_steps = 4;
  for (int step = 0; step < num_steps; ++step) train_step(iterator);
  expect_equal_everywhere(strategy, [&] { return model->parameters()[0]; });
}

}  // namespace seeds

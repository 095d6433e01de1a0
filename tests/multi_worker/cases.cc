#include <lockstep/lockstep.h>
#include <torch/torch.h>

#include <unistd.h>

#include <algorithm>
#include <cstdlib>
#include <iostream>

#include "tests/multi_worker/report.h"
#include "tests/multi_worker/scenarios.h"
#include "tests/support/scratch_folder.h"

// What the cases of CASES.md give on this worker, a line each: "CASE what came".

namespace lockstep::testing {
namespace {

using data::Dataset;

template <typename... Parts>
void print(int number, const Parts&... parts) {
  std::cout << lockstep::str(number, " ", parts...) << std::endl;
}

std::string numbers(const torch::Tensor& value) {
  const auto flat = value.detach().to(torch::kDouble).contiguous().view(-1);
  return lockstep::join(",", std::vector<double>(flat.data_ptr<double>(), flat.data_ptr<double>() + flat.numel()));
}

// "[0,1][2]": the replicas' parts of a step; "; " between steps.
std::string steps_of(const DistributedDataset& distributed) {
  std::vector<std::string> steps;
  for (const auto& batch : distributed) {
    std::string parts;
    for (const auto& part : batch) parts += str("[", numbers(part[0]), "]");
    steps.push_back(parts);
  }
  return join("; ", steps);
}

std::string steps_with(Strategy& strategy, const Dataset& dataset, AutoShardPolicy policy = AutoShardPolicy::kAuto) {
  return steps_of(strategy.experimental_distribute_dataset(dataset.with_options({.auto_shard_policy = policy})));
}

void print_inputs(MultiWorkerMirroredStrategy& strategy) {
  const auto own = strategy.distribute_datasets_from_function([](const InputContext& context) {
    // What shard(pipelines, id) keeps: every so manieth batch.
    const auto is_mine = [=](const torch::Tensor& batch) {
      return batch[0].item<std::int64_t>() / 5 % context.num_input_pipelines == context.input_pipeline_id;
    };
    return Dataset::range(100).repeat().batch(context.get_per_replica_batch_size(10)).filter(is_mine);
  });
  print(94, own.make_iterator().get_next()[0][0].sum().item<std::int64_t>());
  print(95, steps_with(strategy, Dataset::range(14).batch(8)));
  print(283, steps_with(strategy, Dataset::range(9).batch(2)));
  print(293, text_of(code_of_call([&] { strategy.experimental_distribute_dataset(Dataset::range(4)); })), "; ",
        steps_with(strategy, Dataset::range(4).batch(2)));
  print(295, steps_of(strategy.distribute_datasets_from_function(
                 [](const InputContext& context) { return Dataset::range(context.input_pipeline_id == 0 ? 8 : 9).batch(2); })));
  print(299, steps_with(strategy, Dataset::range(12).batch(8), AutoShardPolicy::kOff));
  print(301, steps_with(strategy, Dataset::range(8).batch(3)));
  print(346, steps_with(strategy, Dataset::range(4).batch(2).prefetch(1), AutoShardPolicy::kData));
  print(349, text_of(code_of_call([&] { steps_with(strategy, Dataset::range(4).batch(2), AutoShardPolicy::kFile); })));
  auto nothing = strategy.experimental_distribute_dataset(Dataset::range(0).batch(10)).make_iterator();
  print(352, text_of(code_of_call([&] { nothing.get_next(); })));
  std::int64_t odd = 0;
  std::int64_t seen = 0;
  for (const auto& batch : strategy.experimental_distribute_dataset(Dataset::range(1024).batch(2))) {
    odd += batch[0][0].remainder(2).sum().item<std::int64_t>();
    ++seen;
  }
  print(353, odd, " odd of ", seen);
  print(356, steps_with(strategy, Dataset::range(20).batch(10), AutoShardPolicy::kHint));
}

void print_reductions(MultiWorkerMirroredStrategy& strategy) {
  const auto one = torch::tensor(1.0F);
  print(97, numbers(strategy.reduce("sum", one)));
  print(98, numbers(strategy.extended().reduce_to("sum", one, "/CPU:0")));
  const auto ones = strategy.run([] { return torch::ones({}); });
  const auto batch = strategy.extended().batch_reduce_to("sum", {{ones, ones}, {ones, "/CPU:0"}});
  print(100, numbers(strategy.reduce("sum", ones)), " ", numbers(strategy.extended().reduce_to("sum", ones, ones).get()), " ",
        numbers(batch.at(0).get()), " ", numbers(batch.at(1).get()));
  const auto ids =
      strategy.run([](ReplicaContext& context) { return torch::tensor(1.0F * context.replica_id_in_sync_group()); });
  const auto growing = strategy.run([](ReplicaContext& context) {
    const int id = context.replica_id_in_sync_group();
    return torch::full({id + 1}, id, torch::kDouble);
  });
  const auto on_host =
      strategy.experimental_distribute_dataset(Dataset::range(4).batch(2), {.experimental_fetch_to_device = false});
  print(259, numbers(strategy.reduce("sum", ids)), " ", numbers(strategy.reduce("sum", growing, 0)), " ",
        numbers(strategy.reduce("mean", growing, 0) * 3), " ", steps_of(on_host));
}

void print_cluster(MultiWorkerMirroredStrategy& strategy) {
  const auto* resolver = strategy.cluster_resolver();
  const auto scope = strategy.scope();
  if (resolver == nullptr) return print(101, "no resolver");
  print(101, *resolver->task_type(), " ", *resolver->task_id(), " ",
        get_strategy().cluster_resolver() == resolver ? "the same" : "another");
}

// A plain value of every worker, whatever its number of replicas.
void print_host_values(MultiWorkerMirroredStrategy& strategy, const std::string& what) {
  const auto mine = torch::tensor({1.0F + static_cast<float>(strategy.worker_rank())});
  if (what == "gather") print(97, numbers(strategy.gather(mine, 0)));
  else print(97, numbers(strategy.reduce("sum", mine)), " ", numbers(strategy.reduce("mean", mine)));
}

// Every worker's number, averaged by a strategy that is made anew each time.
void print_rebuilt(const Parameters& parameters) {
  for (int round = 0; round < 20; ++round) {
    MultiWorkerMirroredStrategy strategy(nullptr, options_of(parameters));
    const auto mean = strategy.run([&](ReplicaContext& context) {
      return context.all_reduce("mean", torch::ones({2, 2}) * strategy.worker_rank());
    });
    print(248, numbers(mean[0]));
  }
}

// Worker 1 ends without a word between two calls of the same kind.
void print_peer_failure(const Parameters& parameters) {
  MultiWorkerMirroredStrategy strategy(nullptr, options_of(parameters));
  const auto scope = strategy.scope();
  const bool is_variable = parameters.text("kind", "variable") == "variable";
  const auto call = [&] {
    if (is_variable) Variable variable(torch::ones({2}));
    else strategy.reduce("sum", torch::tensor(1.0F));
  };
  call();
  if (strategy.worker_rank() == 1) _exit(1);
  call();
  std::cout << "survived" << std::endl;
}

// The first time worker 1 ends in the middle; started again, all read the same value.
void print_recovery(const Parameters& parameters) {
  MultiWorkerMirroredStrategy strategy(nullptr, options_of(parameters));
  const auto scope = strategy.scope();
  const char* attempt = std::getenv("TORCHELASTIC_RESTART_COUNT");
  if (strategy.worker_rank() == 1 && attempt != nullptr && std::string(attempt) == "0") _exit(1);
  Variable variable([&] { return torch::tensor(7.0F + static_cast<float>(strategy.worker_rank())); });
  print(253, numbers(variable.read_value()), " on attempt ", attempt != nullptr ? attempt : "?");
}

// Each worker has a folder of its own, so that what it writes itself is seen.
void print_saved_models(MultiWorkerMirroredStrategy& strategy) {
  const ScratchFolder folder;
  const auto scope = strategy.scope();
  Model model(mirrored_from([] { return torch::nn::Sequential(torch::nn::Linear(2, 1)); }));
  model.compile({.optimizer = SGD({.learning_rate = 0.1}), .loss = "mse"});
  const auto rows = Dataset::from_tensor_slices({torch::ones({8, 2}), torch::ones({8, 1})}).batch(4);
  model.fit(rows, {.epochs = 2,
                   .callbacks = {ModelCheckpoint(folder / "{epoch}.safetensors"), ModelCheckpoint(folder / "all")},
                   .verbose = Verbose::kSilent});
  const auto files = real_files().list(folder.path());
  const auto has_all = std::ranges::find(files, "all") != files.end();
  print(542, "[", join(",", files), "] [", has_all ? join(",", real_files().list(folder / "all")) : "", "]");
}

// The first version's strategy: its config, and two passes over data of every worker's own.
void print_first_version() {
  compat::v1::experimental::MultiWorkerMirroredStrategy strategy;
  const auto config = strategy.update_config_proto({});
  print(257, config.experimental.collective_group_leader, " [", join(",", config.device_filters), "] [",
        join(",", config.graph_options.rewrite_options.scoped_allocator_opts.enable_op), "]");
  auto iterator = strategy.make_input_fn_iterator([](const InputContext& context) {
    print(256, context, ", ", context.num_replicas_in_sync, " replicas");
    return Dataset::range(10 * context.input_pipeline_id, 10 * context.input_pipeline_id + 2);
  });
  std::vector<std::string> sums;
  for (int pass = 0; pass < 2; ++pass) {
    iterator.initialize();
    for (int step = 0; step < 2; ++step)
      sums.push_back(numbers(strategy.reduce("sum", strategy.experimental_run([](torch::Tensor x) { return x; }, iterator))));
    sums.push_back(text_of(code_of_call([&] { iterator.get_next(); })));
  }
  print(46, join(" ", sums));
}

}  // namespace

// part=pair: for two workers of one replica each; the others by name.
void cases(const Parameters& parameters) {
  const auto part = parameters.text("part", "pair");
  if (part == "rebuilt") return print_rebuilt(parameters);
  if (part == "failure") return print_peer_failure(parameters);
  if (part == "recovery") return print_recovery(parameters);
  if (part == "first_version") return print_first_version();
  MultiWorkerMirroredStrategy strategy(nullptr, options_of(parameters));
  print_cluster(strategy);
  if (part == "pair") {
    print_reductions(strategy);
    print_inputs(strategy);
    print_saved_models(strategy);
  } else if (part == "hosts") {
    print_host_values(strategy, parameters.text("what", "reduce"));
  } else if (part == "replicas") {
    print(254, strategy.num_replicas_in_sync());
    print(260, strategy.num_workers(), " workers, ", strategy.num_replicas_in_sync(), " replicas");
    print(284, steps_with(strategy, Dataset::range(15).batch(4)));
    print(358, steps_with(strategy, Dataset::range(8).batch(4), AutoShardPolicy::kData));
    strategy.distribute_datasets_from_function([](const InputContext& context) {
      print(256, context, ", ", context.num_replicas_in_sync, " replicas");
      return Dataset::range(4).batch(1);
    });
    const auto sums = strategy.run([](ReplicaContext& context) { return context.all_reduce("sum", torch::ones({})); });
    print(88, numbers(sums[0]));
  }
}

}  // namespace lockstep::testing

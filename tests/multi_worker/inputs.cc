#include <lockstep/lockstep.h>
#include <torch/torch.h>

#include <algorithm>

#include "tests/multi_worker/collectives.h"

// Datasets over several workers: which rows reach which replica, and that all workers end together.

namespace lockstep::testing {
namespace {

using data::Dataset;
using data::Element;

constexpr int kMostSteps = 50;  // more than any pass here has

std::string numbers(const torch::Tensor& value) {
  const auto flat = value.to(torch::kDouble).contiguous().view(-1);
  return lockstep::str(
      value.sizes(), ":",
      lockstep::join(",", std::vector<double>(flat.data_ptr<double>(), flat.data_ptr<double>() + flat.numel())));
}

std::string part_text(const Element& part) {
  std::vector<std::string> texts;
  for (const auto& component : part.components()) texts.push_back(component.name + numbers(component.tensor()));
  return lockstep::join(" ", texts);
}

// One line a replica: its part of every step.
void report_pass(MultiWorkerMirroredStrategy& strategy, Report& report, const std::string& what,
                 const DistributedDataset& distributed, int most = kMostSteps) {
  std::vector<std::string> parts(static_cast<std::size_t>(strategy.replicas().size()));
  int steps = 0;
  for (const auto& batch : distributed) {
    for (std::size_t r = 0; r < parts.size(); ++r) parts[r] += (steps == 0 ? "" : " | ") + part_text(batch[r]);
    if (++steps == most) break;
  }
  report.all(what + ", steps", str(steps));
  report.each(what, PerReplica<std::string>(parts));
}

void report_dataset(MultiWorkerMirroredStrategy& strategy, Report& report, const std::string& what, const Dataset& dataset) {
  report_pass(strategy, report, what, strategy.experimental_distribute_dataset(dataset));
}

Dataset with_policy(const Dataset& dataset, AutoShardPolicy policy) {
  return dataset.with_options({.auto_shard_policy = policy});
}

// 0, 1, ..., and nobody knows beforehand how many.
Dataset counter(std::int64_t stop) {
  return Dataset::from_generator([stop] {
    return [k = std::int64_t{0}, stop]() mutable -> std::optional<Element> {
      if (k == stop) return std::nullopt;
      return Element{torch::tensor(k++)};
    };
  });
}

void report_shuffles(MultiWorkerMirroredStrategy& strategy, Report& report) {
  // Without a seed: worker 0's. Every pass has another order, the same on all workers.
  const auto shuffled = strategy.experimental_distribute_dataset(Dataset::range(24).shuffle(24).batch(8));
  report_pass(strategy, report, "a shuffle without a seed", shuffled);
  report_pass(strategy, report, "its second pass", shuffled);
  const auto again = strategy.experimental_distribute_dataset(Dataset::range(24).shuffle(5).batch(8).repeat(2));
  report_pass(strategy, report, "another shuffle, repeated", again);
  const auto fixed = strategy.experimental_distribute_dataset(Dataset::range(24).shuffle(24, 7, false).batch(8));
  report_pass(strategy, report, "a shuffle with a seed", fixed);
  report_pass(strategy, report, "its second pass, not reshuffled", fixed);
  const auto two = Dataset::zip({Dataset::range(12).shuffle(12), Dataset::range(12).shuffle(12)}).batch(6);
  report_dataset(strategy, report, "two shuffles without seeds", two);
}

void report_refusals(MultiWorkerMirroredStrategy& strategy, Report& report) {
  constexpr auto kInvalid = ErrorCode::kInvalidArgument;
  const auto code = [&](const Dataset& dataset, const InputOptions& options = {}) {
    return code_of_call([&] { strategy.experimental_distribute_dataset(dataset, options); });
  };
  report.expect("elements without rows", code(Dataset::range(8)), kInvalid);
  report.expect("a pipeline for each replica",
                code(Dataset::range(8).batch(4), {.experimental_replication_mode = InputReplicationMode::kPerReplica}),
                ErrorCode::kUnimplemented);
  const auto distributed = strategy.experimental_distribute_dataset(Dataset::range(8).batch(4));
  auto iterator = distributed.make_iterator();
  iterator.get_next();
  iterator.get_next();
  report.expect("get_next() at the end", code_of_call([&] { iterator.get_next(); }), ErrorCode::kOutOfRange);
  report.expect("an optional at the end", iterator.get_next_as_optional().has_value() ? "a value" : "none", "none");
}

// How many steps a pass over this worker's own data has, and how many rows its replicas saw.
std::string count_steps(const DistributedDataset& distributed, int most = kMostSteps) {
  int steps = 0;
  std::int64_t rows = 0;
  for (const auto& batch : distributed) {
    for (const auto& part : batch) rows += part[0].size(0);
    if (++steps == most) break;
  }
  return str(steps, " steps, ", rows, " rows");
}

// How many replicas each worker has.
std::vector<int> replicas_by_worker(MultiWorkerMirroredStrategy& strategy) {
  const auto ranks =
      strategy.run([&](ReplicaContext& context) { return context.all_gather(torch::tensor({strategy.worker_rank()}), 0); })[0];
  std::vector<int> counts(static_cast<std::size_t>(strategy.num_workers()));
  for (std::int64_t r = 0; r < ranks.numel(); ++r) ++counts[static_cast<std::size_t>(ranks[r].item<std::int64_t>())];
  return counts;
}

// The steps of the worker that has the most, when worker w has amount(w) elements, one for each replica and step.
std::int64_t most_steps(const std::vector<int>& replicas, const std::function<std::int64_t(int worker)>& amount) {
  std::int64_t most = 0;
  for (std::size_t w = 0; w < replicas.size(); ++w)
    most = std::max(most, (amount(static_cast<int>(w)) + replicas[w] - 1) / replicas[w]);
  return most;
}

// Worker w has amount(w) elements of two rows.
void report_amounts(MultiWorkerMirroredStrategy& strategy, Report& report, const std::string& what,
                    const std::function<std::int64_t(int worker)>& amount) {
  const int rank = strategy.worker_rank();
  const auto mine = amount(rank);
  const auto wanted = str(most_steps(replicas_by_worker(strategy), amount), " steps, ", 2 * mine, " rows");
  const auto from = [&](const std::function<Dataset(std::int64_t)>& make) {
    return strategy.distribute_datasets_from_function([&](const InputContext&) { return make(2 * mine); });
  };
  const auto known = from([](std::int64_t stop) { return Dataset::range(stop).batch(2); });
  report.check(what + ", known amounts", count_steps(known), wanted);
  report.check(what + ", a second pass", count_steps(known), wanted);
  const auto unknown = from([](std::int64_t stop) { return counter(stop).batch(2); });
  report.check(what + ", unknown amounts", count_steps(unknown), wanted);
  report.check(what + ", a second pass over unknown amounts", count_steps(unknown), wanted);
  const auto mixed =
      from([&](std::int64_t stop) { return rank % 2 == 0 ? Dataset::range(stop).batch(2) : counter(stop).batch(2); });
  report.check(what + ", amounts that some know", count_steps(mixed), wanted);
}

// Every worker reads everything.
void report_everything(MultiWorkerMirroredStrategy& strategy, Report& report) {
  const auto steps = most_steps(replicas_by_worker(strategy), [](int) { return 8; });  // 16 rows in parts of two
  for (const auto policy : {AutoShardPolicy::kOff, AutoShardPolicy::kHint}) {
    const auto all = strategy.experimental_distribute_dataset(with_policy(Dataset::range(16).batch(8), policy));
    report.check(str("everything for all, policy ", static_cast<int>(policy)), count_steps(all), str(steps, " steps, 16 rows"));
  }
}

}  // namespace

void report_inputs(MultiWorkerMirroredStrategy& strategy, Report& report) {
  report_dataset(strategy, report, "a partial batch", Dataset::range(14).batch(8));
  report_dataset(strategy, report, "uneven parts", Dataset::range(15).batch(7));
  report_dataset(strategy, report, "fewer rows than replicas", Dataset::range(7).batch(3));
  report_dataset(strategy, report, "single rows", Dataset::range(3).batch(1));
  report_dataset(strategy, report, "by data", with_policy(Dataset::range(14).batch(8), AutoShardPolicy::kData));
  report_dataset(strategy, report, "no partial batch", Dataset::range(14).batch(8, /*drop_remainder=*/true));
  report_dataset(strategy, report, "no data", Dataset::range(0).batch(4));
  report_dataset(strategy, report, "a generator", counter(14).batch(8));
  report_dataset(strategy, report, "an empty generator", counter(0).batch(8));
  report_dataset(strategy, report, "a filter",
                 Dataset::range(30).filter([](const torch::Tensor& x) { return x.item<std::int64_t>() % 3 == 0; }).batch(4));
  report_dataset(strategy, report, "prefetched", Dataset::range(14).batch(8).prefetch(2));
  report_dataset(strategy, report, "mapped after the batch",
                 Dataset::range(14).batch(8).map([](const torch::Tensor& x) { return x * x; }));
  report_dataset(strategy, report, "repeated", Dataset::range(5).batch(4).repeat(3));
  report_dataset(strategy, report, "batches that differ", Dataset::range(6).batch(5).concatenate(Dataset::range(9).batch(8)));
  const Element named{{"x", torch::arange(20, torch::kFloat).view({10, 2})}, {"y", torch::arange(10)}};
  report_dataset(strategy, report, "named components", Dataset::from_tensor_slices(named).batch(6));
  const auto endless = strategy.experimental_distribute_dataset(Dataset::range(6).repeat().batch(8));
  report_pass(strategy, report, "endless", endless, 4);
  const auto cardinality = [&](const Dataset& dataset) {
    return str(strategy.experimental_distribute_dataset(dataset).cardinality());
  };
  report.expect("the number of steps", cardinality(Dataset::range(14).batch(8)), "2");
  report_shuffles(strategy, report);
  report_refusals(strategy, report);
}

void report_own_inputs(MultiWorkerMirroredStrategy& strategy, Report& report) {
  const int rank = strategy.worker_rank();
  const int workers = strategy.num_workers();
  report_amounts(strategy, report, "as much for all", [](int) { return 5; });
  report_amounts(strategy, report, "more for later workers", [](int worker) { return 3 * worker; });
  report_amounts(strategy, report, "nothing for the last", [&](int worker) { return worker == workers - 1 ? 0 : 4; });
  report_amounts(strategy, report, "only for the last", [&](int worker) { return worker == workers - 1 ? 9 : 0; });
  report_amounts(strategy, report, "nothing at all", [](int) { return 0; });

  std::string context_text;
  const auto endless = strategy.distribute_datasets_from_function([&](const InputContext& context) {
    context_text =
        str(context.input_pipeline_id, " of ", context.num_input_pipelines, ", ", context.num_replicas_in_sync, " replicas");
    const auto one = Dataset::range(2).batch(2);
    return context.input_pipeline_id == 0 ? one.repeat() : one;
  });
  report.check("the input context", context_text, str(rank, " of ", workers, ", 4 replicas"));
  const auto rows = rank == 0 ? 14 * strategy.replicas().size() : 2;
  report.check("endless on worker 0 only", count_steps(endless, 7), str("7 steps, ", rows, " rows"));
  report_everything(strategy, report);
  const auto for_each_replica = code_of_call([&] {
    strategy.distribute_datasets_from_function([](const InputContext&) { return Dataset::range(4).batch(1); },
                                               {.experimental_replication_mode = InputReplicationMode::kPerReplica});
  });
  if (workers > 1) report.check("a pipeline for each replica", text_of(for_each_replica), "kUnimplemented");
}

}  // namespace lockstep::testing

#include <iostream>
#include <map>

#include "lockstep/base/error.h"
#include "lockstep/strategy/multi_worker_mirrored_strategy.h"
#include "lockstep/strategy/strategy_extended.h"
#include "tests/oracle_runner/files.h"
#include "tests/oracle_runner/pipeline.h"
#include "tests/oracle_runner/strategies.h"
#include "tests/oracle_runner/suites.h"
#include "tests/oracle_runner/values.h"
#include "tests/oracle_runner/worker_pool.h"

// What every process of a MultiWorkerMirroredStrategy sees: real processes, one replica each. The program that reads the
// cases asks; here stands what a worker answers.

namespace lockstep::oracle {
namespace {

constexpr int kMostSteps = 10'000;

// One worker with what it was asked.
struct Worker {
  MultiWorkerMirroredStrategy& strategy;
  Json input;

  // This worker's own of a list with one for each.
  const Json& mine(const char* key) const { return input.at(key).at(static_cast<std::size_t>(strategy.worker_rank())); }
  std::string op() const { return input.at("op").get<std::string>(); }
  PerReplica<at::Tensor> value() const { return PerReplica<at::Tensor>({to_tensor(mine("values"))}); }
};

Json steps_of(const DistributedDataset& dataset) {
  Json steps = Json::array();
  for (const auto& batch : dataset) {
    steps.push_back(to_json(batch));
    if (steps.size() > kMostSteps) throw std::runtime_error("the dataset does not end");
  }
  return {{"steps", std::move(steps)}};
}

Json distribute_dataset(const Worker& worker) {
  write_files(worker.input);
  const auto policy = to_policy(get_or<std::string>(worker.input, "policy", "AUTO"));
  return steps_of(
      worker.strategy.experimental_distribute_dataset(build_pipeline(worker.input.at("pipeline")).with_options({policy})));
}

Json distribute_from_function(const Worker& worker) {
  const auto rows = worker.mine("ranges").get<std::int64_t>();
  return steps_of(worker.strategy.distribute_datasets_from_function([&](const InputContext&) {
    return data::Dataset::range(rows).batch(worker.input.at("batch"), get_or(worker.input, "drop_remainder", false));
  }));
}

Json reduce(const Worker& worker) {
  const auto axis = get_or<Json>(worker.input, "axis", nullptr);
  return {{"value", to_json(worker.strategy.reduce(worker.op(), worker.value(),
                                                   axis.is_null() ? Axis() : Axis(axis.get<std::int64_t>())))}};
}

Json reduce_plain(const Worker& worker) {
  return {{"value", to_json(worker.strategy.reduce(worker.op(), to_tensor(worker.input.at("value"))))}};
}

Json all_reduce(const Worker& worker) {
  const auto op = worker.op();
  return {{"replicas", to_json(worker.strategy.run(
                           [&](ReplicaContext& context, const at::Tensor& value) { return context.all_reduce(op, value); },
                           worker.value()))}};
}

Json all_gather(const Worker& worker) {
  const auto axis = worker.input.at("axis").get<std::int64_t>();
  return {{"replicas", to_json(worker.strategy.run(
                           [&](ReplicaContext& context, const at::Tensor& value) { return context.all_gather(value, axis); },
                           worker.value()))}};
}

Json gather(const Worker& worker) {
  return {{"value", to_json(worker.strategy.gather(worker.value(), worker.input.at("axis").get<std::int64_t>()))}};
}

Json variable(const Worker& worker) {
  const auto scope = worker.strategy.scope();
  Variable made(to_tensor(worker.input.at("initial")),
                {.synchronization = to_synchronization(worker.input.at("synchronization")),
                 .aggregation = to_aggregation(worker.input.at("aggregation"))});
  worker.strategy.run([&](const at::Tensor& value) { made.assign_add(value); }, worker.value());
  return {{"local_components", list_to_json(made.components())}, {"read_cross", to_json(made.read_value())}};
}

Json initial_value(const Worker& worker) {
  const auto scope = worker.strategy.scope();
  return {{"value", to_json(Variable(to_tensor(worker.mine("values"))).read_value())}};
}

Json contexts(const Worker& worker) {
  auto& extended = worker.strategy.extended();
  const auto ids = worker.strategy.run(
      [](ReplicaContext& context) { return at::scalar_tensor(context.replica_id_in_sync_group(), at::kInt); });
  return {{"num_replicas_in_sync", worker.strategy.num_replicas_in_sync()},
          {"replica_ids", to_json(ids)},
          {"should_checkpoint", extended.should_checkpoint()},
          {"should_save_summary", extended.should_save_summary()},
          {"worker_devices", extended.worker_devices()},
          {"between_graph", extended.experimental_between_graph()}};
}

const std::map<std::string, Json (*)(const Worker&)> kApis = {
    {"experimental_distribute_dataset", distribute_dataset},
    {"distribute_datasets_from_function", distribute_from_function},
    {"reduce", reduce},
    {"reduce_plain", reduce_plain},
    {"all_reduce", all_reduce},
    {"all_gather", all_gather},
    {"gather", gather},
    {"variable", variable},
    {"initial_value", initial_value},
    {"contexts", contexts},
};

Json answer_of(const Worker& worker) {
  try {
    return {{"expect", kApis.at(worker.input.at("api").get<std::string>())(worker)}};
  } catch (const NotApplicable& reason) {
    return {{"not_applicable", reason.what()}};
  } catch (const Error& error) {
    return {{"error", {{"code", name_of(error.code())}, {"message", error.what()}}}};
  }
}

}  // namespace

int serve_as_worker() {
  MultiWorkerMirroredStrategy strategy(nullptr, {.join_timeout = std::chrono::seconds(60)});
  std::string line;
  while (std::getline(std::cin, line)) std::cout << answer_of({strategy, Json::parse(line)}).dump() << std::endl;
  return 0;
}

Json answer_multi_worker(const Case& one) {
  if (kApis.count(get_or<std::string>(one.input, "api", "")) == 0) refuse(one);
  const int workers = one.input.at("workers").get<int>();
  std::vector<Json> answers;
  try {
    answers = pool_of(workers).ask(one);
  } catch (...) {
    end_pool(workers);
    throw;
  }
  Json all = Json::array();
  for (const auto& answer : answers) {
    if (answer.contains("not_applicable")) throw NotApplicable(answer["not_applicable"].get<std::string>());
    if (answer.contains("error")) end_pool(workers);  // a job that has failed stays so
    all.push_back(answer.contains("expect") ? answer["expect"] : answer);
  }
  return {{"workers", std::move(all)}};
}

std::optional<Difference> difference_in_multi_worker(const Case& one) {
  if (!one.balanced.is_null()) {
    Json workers = Json::array();
    for (int w = 0; w < one.input.at("workers").get<int>(); ++w) {
      Json steps = Json::array();
      for (const auto& step : one.balanced) steps.push_back(Json::array({step.at(static_cast<std::size_t>(w))}));
      workers.push_back({{"steps", std::move(steps)}});
    }
    return Difference{"A4: a batch is cut into parts that differ by at most one row, worker by worker",
                      {{{"expect", {{"workers", std::move(workers)}}}}}};
  }
  if (get_or<std::string>(one.input, "aggregation", "") == "ONLY_FIRST_REPLICA" && one.asked().contains("workers")) {
    Json outcome = one.outcome;
    for (auto& worker : outcome["expect"]["workers"]) worker = one.asked().at("workers").at(0);
    return Difference{"A8: the value of replica 0 of the whole job, so that copies stay equal", {std::move(outcome)}};
  }
  return std::nullopt;
}

}  // namespace lockstep::oracle

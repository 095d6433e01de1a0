#include "lockstep/ps/cluster_coordinator.h"

#include <algorithm>
#include <numeric>

#include "lockstep/base/error.h"
#include "lockstep/ps/server_variables.h"
#include "lockstep/ps/worker_lane.h"
#include "lockstep/strategy/mirrored_strategy.h"
#include "lockstep/strategy/parameter_server_strategy.h"
#include "lockstep/strategy/strategy_extended.h"
#include "tests/oracle_runner/suites.h"
#include "tests/oracle_runner/values.h"
#include "tests/support/server_cluster.h"

// A coordinator with its workers and parameter servers, all in this process as the oracle's were.

namespace lockstep::oracle {
namespace {

using Ints = std::vector<std::int64_t>;

Deadline soon() { return Deadline::after(std::chrono::seconds(60)); }

// A cluster of its own for each case: servers keep variables by their names.
struct Job {
  explicit Job(const Json& input, Partitioner partitioner = nullptr)
      : cluster(get_or(input, "ps", 2), get_or(input, "workers", 2)),
        strategy(cluster.chief(), std::move(partitioner)),
        coordinator(strategy) {}

  Variable variable(const at::Tensor& initial, const std::string& name = "") {
    const auto scope = strategy.scope();
    return Variable(initial, {.name = name});
  }
  void join() { coordinator.join(soon()); }

  testing::ServerCluster cluster;
  ParameterServerStrategy strategy;
  ClusterCoordinator coordinator;
};

at::Tensor scalar(double value) { return at::scalar_tensor(value, at::kFloat); }

// The functions of the cases.
at::Tensor add_and_double(Variable v, const at::Tensor& x) {
  v.assign_add(x);
  return x * 2;
}
at::Tensor twice(const at::Tensor& x) { return x * 2; }
at::Tensor fail(const at::Tensor&) { throw Error(ErrorCode::kInvalidArgument, "the function fails"); }
using Pair = std::tuple<at::Tensor, std::vector<at::Tensor>>;  // {a: ..., b: [...]}
Pair up_and_down(const at::Tensor& x) { return {x + 1, {x - 1}}; }
std::int64_t sum_of_the_rest(data::Iterator& it) {
  std::int64_t sum = 0;
  while (const auto element = it.next()) sum += (*element)[0].item<std::int64_t>();
  return sum;
}
std::int64_t next_of(data::Iterator& it) { return next_element(it)[0].item<std::int64_t>(); }

const auto kAddAndDouble = remote_function("oracle.add_and_double", add_and_double);
const auto kTwice = remote_function("oracle.twice", twice);
const auto kFail = remote_function("oracle.fail", fail);
const auto kUpAndDown = remote_function("oracle.up_and_down", up_and_down);
const auto kSumOfTheRest = remote_function("oracle.sum_of_the_rest", sum_of_the_rest);
const auto kNextOf = remote_function("oracle.next_of", next_of);

Json pair_to_json(const Pair& pair) { return {{"a", to_json(std::get<0>(pair))}, {"b", list_to_json(std::get<1>(pair))}}; }

// "ok", or the name of TensorFlow's error for ours.
template <typename F>
std::string raised(F&& call, const char* for_bad_argument = "InvalidArgumentError") {
  try {
    call();
    return "ok";
  } catch (const Error& error) {
    if (error.code() == ErrorCode::kInvalidArgument) return for_bad_argument;
    return error.code() == ErrorCode::kCancelled ? "CancelledError" : name_of(error.code());
  }
}

// The error of a call, in an answer in place of a value.
template <typename F>
Json error_of(F&& call) {
  const auto answer = field([&]() -> Json {
    call();
    return "no error";
  });
  return answer.is_object() ? answer.at("error") : answer;
}

Partitioner to_partitioner(const Json& input) {
  const auto name = get_or<std::string>(input, "partitioner", "");
  const auto arguments = get_or<Json>(input, "arguments", Json::object());
  const auto number = [&](const char* key, std::int64_t otherwise) { return get_or(arguments, key, otherwise); };
  if (name == "FixedShardsPartitioner") return FixedShardsPartitioner(arguments.at("num_shards").get<std::int64_t>());
  if (name == "MinSizePartitioner")
    return MinSizePartitioner({.min_shard_bytes = number("min_shard_bytes", 256 << 10), .max_shards = number("max_shards", 1)});
  if (name == "MaxSizePartitioner") {
    MaxSizePartitionerOptions options{.max_shard_bytes = arguments.at("max_shard_bytes").get<std::int64_t>()};
    if (const auto most = number("max_shards", 0); most > 0) options.max_shards = most;
    return MaxSizePartitioner(options);
  }
  if (!name.empty()) throw NotApplicable("needs " + name);
  return nullptr;
}

// A variable that is made outside of every scope lives in this process, which is the chief.
std::string device_of(const Variable& variable) {
  const auto name = variable.devices().at(0);
  const auto device = name.find("/device:");
  return variable.is_remote() ? name : "/job:chief/replica:0/task:0" + name.substr(device);
}

Json placed(const Variable& variable) {
  const auto shards = variable.shards();
  if (shards.empty()) return {{"device", device_of(variable)}, {"value", to_json(variable.value().detach())}};
  Json list = Json::array();
  for (const auto& shard : shards)
    list.push_back({{"device", device_of(shard)}, {"name", shard.name() + ":0"}, {"value", to_json(shard.value().detach())}});
  return {{"shards", list}};
}

// The first value is named "emb"; the sixth is made beside the second.
constexpr std::size_t kBeside = 5;

Json answer_placement(const Case& one) {
  Job job(one.input, to_partitioner(one.input));
  const Variable outside(0.0);
  std::vector<Variable> all;
  const auto scope = job.strategy.scope();
  for (const auto& value : one.input.at("values")) {
    const auto make = [&] { return Variable(to_tensor(value), {.name = all.empty() ? "emb" : ""}); };
    if (all.size() != kBeside) {
      all.push_back(make());
      continue;
    }
    const auto beside = job.strategy.extended().colocate_vars_with(all.at(1));
    all.push_back(make());
  }
  Json variables = Json::array();
  for (const auto& variable : all) variables.push_back(placed(variable));
  return {{"variables", variables}, {"outside_scope_device", device_of(outside)}};
}

Json answer_partitioner_result(const Case& one) {
  const auto result = one.input.at("result").get<std::string>();
  if (result == "not_a_list") throw NotApplicable("a partitioner that returns no list is refused by the compiler");
  const Ints answer = result == "two_axes" ? Ints{2, 2} : Ints{0, 1};
  Job job(one.input, [answer](const Ints&, at::ScalarType) { return answer; });
  return placed(job.variable(at::zeros({4, 4})));
}

Json answer_partition_aware(const Case& one) {
  Job job(one.input, FixedShardsPartitioner(2));
  Json calls = Json::array();
  const auto scope = job.strategy.scope();
  const Variable v(
      [&](const Ints& shape, const Ints& offset) {
        calls.push_back({shape, offset});
        return at::eye(4).narrow(0, offset.at(0), shape.at(0));
      },
      {4, 4}, at::kFloat);
  Json shards = Json::array();
  for (const auto& shard : v.shards()) shards.push_back(to_json(shard.value().detach()));
  return {{"shards", shards}, {"calls", calls}};
}

Json answer_schedule(const Case& one) {
  Job job(one.input);
  const auto v = job.variable(to_tensor(one.input.at("initial")));
  std::vector<RemoteValue<at::Tensor>> results;
  for (const auto& x : one.input.at("arguments")) results.push_back(job.coordinator.schedule(kAddAndDouble, v, to_tensor(x)));
  job.join();
  const auto fetched = job.coordinator.fetch(results);
  results.erase(results.begin() + std::min<std::ptrdiff_t>(2, std::ssize(results)), results.end());
  Json get = Json::array();
  for (const auto& result : results) get.push_back(to_json(result.get()));
  return {{"fetched", list_to_json(fetched)},
          {"variable", to_json(v.value().detach())},
          {"done", job.coordinator.done()},
          {"get", get},
          {"fetch", list_to_json(job.coordinator.fetch(results))}};
}

Json answer_fetch(const Case& one) {
  Job job(one.input);
  const auto remote = job.coordinator.schedule(kUpAndDown, to_tensor(one.input.at("argument")));
  const auto [value, plain, list] = job.coordinator.fetch(std::tuple(remote, 7, std::vector{remote}));
  Json values = Json::array();
  for (const auto& item : list) values.push_back(pair_to_json(item));
  return {{"fetched", {{"remote", pair_to_json(value)}, {"plain", plain}, {"list", values}}}};
}

// C++ has no keyword arguments: they are given by their places.
Json answer_kwargs(const Case& one) {
  Job job(one.input);
  return {{"fetched", pair_to_json(job.coordinator.schedule(kUpAndDown, to_tensor(one.input.at("x"))).get(soon()))}};
}

Json answer_join(const Case& one) {
  Job job(one.input);
  const bool before = job.coordinator.done();
  job.join();
  return {{"done_before", before}, {"join", nullptr}, {"done_after", job.coordinator.done()}};
}

Json answer_twice(const Case& one) {
  Job job(one.input);
  return {{"same", ClusterCoordinator(job.strategy) == job.coordinator}};
}

Json refuse_other_strategies(const Case&) {
  static_assert(!std::is_constructible_v<ClusterCoordinator, MirroredStrategy&>);
  throw NotApplicable("a coordinator of another strategy is refused by the compiler");
}
Json refuse_remote_value(const Case&) {
  static_assert(!ps::is_sendable<RemoteValue<at::Tensor>>());
  throw NotApplicable("a RemoteValue as an argument is refused by the compiler");
}
Json refuse_not_callable(const Case&) { throw NotApplicable("scheduling what is no function is refused by the compiler"); }

Json answer_plain_function(const Case& one) {
  struct Local {
    static int plain() { return 1; }
  };
  Job job(one.input);
  job.coordinator.schedule(Local::plain);
  return {};
}

Json answer_num_replicas(const Case& one) {
  Job job(one.input);
  Json devices = Json::array();
  for (const auto& name : job.strategy.extended().worker_devices()) devices.push_back(name.substr(name.find("/device:")));
  return {{"num_replicas_in_sync", job.strategy.num_replicas_in_sync()}, {"worker_devices", devices}};
}

Json answer_reduce_here(const Case& one) {
  Job job(one.input);
  return {{"sum_of_plain", to_json(job.strategy.reduce(ReduceOp::kSum, scalar(3)))},
          {"mean_axis_0", to_json(job.strategy.reduce(ReduceOp::kMean, at::tensor({1.0F, 2.0F}), 0))}};
}
Json answer_gather_here(const Case& one) {
  Job job(one.input);
  return {{"value", to_json(job.strategy.gather(at::tensor({1.0F, 2.0F}), 0))}};
}
Json answer_run_here(const Case& one) {
  Job job(one.input);
  const auto results = job.strategy.run(twice, scalar(7));
  return {{"value", to_json(results[0])}, {"replicas", results.size()}};
}

Json answer_error_join(const Case& one) {
  Job job(one.input);
  const std::vector earlier = {job.coordinator.schedule(kTwice, scalar(1)), job.coordinator.schedule(kTwice, scalar(1))};
  job.join();
  const auto failed = job.coordinator.schedule(kFail, scalar(1));
  Json answer;
  answer["first_join"] = raised([&] { job.join(); });
  answer["second_join"] = raised([&] { job.join(); });
  answer["fetch_of_failed"] = raised([&] { failed.fetch(); });
  answer["fetch_of_earlier"] = list_to_json(job.coordinator.fetch(earlier));
  answer["usable_afterwards"] = to_json(job.coordinator.schedule(kTwice, scalar(3)).get(soon()));
  job.join();
  answer["done"] = job.coordinator.done();
  return answer;
}

// Until a call throws, or a minute has passed.
template <typename F>
std::string raised_in_time(F&& call) {
  const auto deadline = soon();
  while (!deadline.has_passed())
    if (const auto error = raised(call); error != "ok") return error;
  return "ok";
}

Json answer_error_schedule(const Case& one) {
  Job job(one.input);
  const auto failed = job.coordinator.schedule(kFail, scalar(1));
  Json answer;
  answer["schedule_raised"] = raised_in_time([&] { job.coordinator.schedule(kTwice, scalar(1)); });
  answer["join_afterwards"] = raised([&] { job.join(); });
  answer["fetch_of_failed"] = raised([&] { failed.fetch(); });
  answer["done"] = job.coordinator.done();
  return answer;
}

Json answer_error_done(const Case& one) {
  Job job(one.input);
  job.coordinator.schedule(kFail, scalar(1));
  Json answer;
  answer["done_raised"] = raised_in_time([&] { job.coordinator.done(); });
  answer["done_again"] = job.coordinator.done();
  answer["join_afterwards"] = raised([&] { job.join(); });
  return answer;
}

Json answer_error_fetch(const Case& one) {
  Job job(one.input);
  const auto failed = job.coordinator.schedule(kFail, scalar(1));
  Json answer;
  answer["fetch"] = raised([&] { failed.get(soon()); });
  answer["join_after_fetch"] = raised([&] { job.join(); });
  answer["join_again"] = raised([&] { job.join(); });
  return answer;
}

// put a, put b, get a, a fails, put c
Json answer_closure_queue(const Case&) {
  ps::ClosureQueue queue;
  std::vector<std::shared_ptr<ps::ResultOf<int>>> slots;
  const auto put = [&] {
    slots.push_back(std::make_shared<ps::ResultOf<int>>());
    const auto closure = std::make_shared<ps::ScheduledClosure>(ps::Call(), slots.back());
    queue.put(closure, soon());
    return ps::ClosurePtr(closure);
  };
  const auto fetch = [&](std::size_t index) { return error_of([&] { RemoteValue<int>(slots.at(index)).get(soon()); }); };
  const auto a = put();
  put();
  const auto taken = queue.get({}, soon());
  queue.mark_failed(std::make_exception_ptr(Error(ErrorCode::kInvalidArgument, "a fails")));
  Json answer;
  answer["put_after_failure"] = raised(put, "ValueError");
  answer["fetch_of_queued"] = fetch(1);
  answer["fetch_of_rejected"] = fetch(2);
  answer["done"] = queue.done(soon());
  answer["put_again"] = raised(put);
  answer["got_first"] = taken.closures.size() == 1 && taken.closures[0] == a;
  return answer;
}

PerWorkerIterator iterator_of(Job& job, std::int64_t length) {
  // The function that makes a dataset cannot capture: the length travels beside it.
  auto lengths = job.coordinator.create_per_worker_resource(
      [](std::int64_t n) { return data::Dataset::range(n).make_iterator(); }, length);
  return lengths;
}

Json answer_dataset(const Case& one) {
  const auto source = one.input.at("source").get<std::string>();
  Job job(one.input);
  if (source == "function that makes a variable") {
    const auto dataset = job.coordinator.create_per_worker_dataset([] {
      const Variable made(1.0);
      return data::Dataset::range(1);
    });
    job.coordinator.schedule(kNextOf, dataset.make_iterator());
    job.join();
    return {};
  }
  if (source != "function" && source != "dataset") throw NotApplicable("a dataset of another type is refused by the compiler");
  const auto length = one.input.at("range").get<std::int64_t>();
  const auto iterator = iterator_of(job, length);
  // Of a worker's numbers the first closure there sums all, and others find none.
  const std::vector<std::int64_t> allowed = {0, length * (length - 1) / 2};
  std::vector<RemoteValue<std::int64_t>> sums;
  for (int i = 0; i < 4; ++i) sums.push_back(job.coordinator.schedule(kSumOfTheRest, iterator));
  job.join();
  const auto fetched = job.coordinator.fetch(sums);
  const bool are_allowed = std::ranges::all_of(fetched, [&](auto sum) { return std::ranges::count(allowed, sum) > 0; });
  return {{"allowed_values", allowed},
          {"fetched_are_allowed", are_allowed && std::ranges::count(fetched, allowed[1]) > 0},
          {"class", std::is_same_v<decltype(iterator), const PerWorkerIterator> ? "PerWorkerDistributedIterator" : "?"},
          {"next_on_coordinator", field([&] { return to_json(next_element(iterator.local())); })}};
}

Json answer_dataset_end(const Case& one) {
  Job job(one.input);
  const auto iterator = iterator_of(job, one.input.at("range").get<std::int64_t>());
  return {{"join", error_of([&] {
             for (int i = 0; i < one.input.at("scheduled").get<int>(); ++i) job.coordinator.schedule(kNextOf, iterator);
             job.join();
           })}};
}

Json answer_distribute(const Case& one) {
  Job job(one.input);
  return {{"iterate_on_coordinator", field([&]() -> Json {
             const auto dataset = job.strategy.experimental_distribute_dataset(data::Dataset::range(4).batch(2));
             for (const auto& batch : dataset) return to_json(batch);
             return {};
           })}};
}

}  // namespace

Json answer_coordinator(const Case& one) {
  static const std::map<std::string, Json (*)(const Case&)> apis = {{"placement", answer_placement},
                                                                    {"partitioner_result", answer_partitioner_result},
                                                                    {"partition_aware_initializer", answer_partition_aware},
                                                                    {"schedule", answer_schedule},
                                                                    {"fetch", answer_fetch},
                                                                    {"join", answer_join},
                                                                    {"schedule_kwargs", answer_kwargs},
                                                                    {"ClusterCoordinator_twice", answer_twice},
                                                                    {"ClusterCoordinator_of_mirrored", refuse_other_strategies},
                                                                    {"schedule_plain_function", answer_plain_function},
                                                                    {"schedule_with_remote_value", refuse_remote_value},
                                                                    {"schedule_not_callable", refuse_not_callable},
                                                                    {"num_replicas_in_sync", answer_num_replicas},
                                                                    {"reduce", answer_reduce_here},
                                                                    {"gather", answer_gather_here},
                                                                    {"run", answer_run_here},
                                                                    {"error_join", answer_error_join},
                                                                    {"error_schedule", answer_error_schedule},
                                                                    {"error_done", answer_error_done},
                                                                    {"error_fetch", answer_error_fetch},
                                                                    {"closure_queue", answer_closure_queue},
                                                                    {"create_per_worker_dataset", answer_dataset},
                                                                    {"dataset_end", answer_dataset_end},
                                                                    {"experimental_distribute_dataset", answer_distribute}};
  return call_api(apis, one);
}

std::optional<Difference> difference_in_coordinator(const Case& one) {
  const auto api = get_or<std::string>(one.input, "api", "");
  if (api == "create_per_worker_dataset" && one.input.at("source") == "function that makes a variable")
    return Difference{"a dataset function runs on workers alone: its error is that of the closure that needs its dataset (A7)",
                      {{{"error", {{"code", "kFailedPrecondition"}}}}}};
  if (api != "placement" || !one.asked().is_object()) return std::nullopt;
  // A server knows a variable by its name: one that was given none has a number.
  auto ours = one.outcome;
  int unnamed = 0;
  for (auto& variable : ours["expect"]["variables"]) {
    const auto name = "Variable" + (unnamed < 2 ? "" : "_" + std::to_string(unnamed - 1));
    ++unnamed;
    if (unnamed == 1 || !variable.contains("shards")) continue;
    for (std::size_t i = 0; i < variable["shards"].size(); ++i)
      variable["shards"][i]["name"] = name + "/part_" + std::to_string(i) + ":0";
  }
  return Difference{"shards of a variable without a name are told apart by a number, as servers know them by names",
                    {std::move(ours)}};
}

}  // namespace lockstep::oracle

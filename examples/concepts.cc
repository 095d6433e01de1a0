// The claims of docs/concepts.md as a program: it ends with 0 when all of them hold, and says which line does not.
#include <lockstep/lockstep.h>

#include <atomic>
#include <chrono>
#include <iostream>
#include <source_location>
#include <thread>

namespace ls = lockstep;

namespace {

std::atomic<int> g_wrong = 0;

void expect(bool claim, std::source_location where = std::source_location::current()) {
  if (claim) return;
  ++g_wrong;
  std::cerr << "concepts.cc:" << where.line() << ": this does not hold\n";
}

bool is(const torch::Tensor& tensor, double number) { return tensor.item<double>() == number; }
bool is(const torch::Tensor& tensor, std::vector<float> numbers) { return torch::equal(tensor, torch::tensor(numbers)); }

// The code of the error that fn throws; nothing when it throws none.
template <typename F>
std::optional<ls::ErrorCode> code_of(F fn) {
  try {
    fn();
  } catch (const ls::Error& error) {
    return error.code();
  }
  return std::nullopt;
}

void devices() {
  // [devices]
  ls::MirroredStrategy two({"CPU:0", "/device:CPU:1"});
  ls::MirroredStrategy four({"CPU:0", "CPU:1"}, {.replicas_per_device = 2});
  expect(two.num_replicas_in_sync() == 2 && four.num_replicas_in_sync() == 4);
  expect(two.extended().worker_devices()[1] == "/job:localhost/replica:0/task:0/device:CPU:1");
  // [devices]
  expect(code_of([] { ls::MirroredStrategy({"CPU:0", "/cpu:0"}); }) == ls::ErrorCode::kInvalidArgument);
  ls::set_logical_device_configuration("CPU:0", 2);
  expect(ls::list_logical_devices("CPU").size() == 2);
  expect(code_of([] { ls::MirroredStrategy({"CPU:2"}); }) == ls::ErrorCode::kInvalidArgument);
  ls::reset_logical_device_configuration();
  expect(code_of([] { ls::MirroredStrategy({"CPU:2"}); }) == std::nullopt);
}

void contexts() {
  // [contexts]
  ls::MirroredStrategy strategy({"CPU:0", "CPU:1"});
  expect(!ls::has_strategy() && ls::get_replica_context()->num_replicas_in_sync() == 1);  // the default replica
  auto scope = strategy.scope();
  expect(ls::in_cross_replica_context() && ls::get_replica_context() == nullptr);
  strategy.run([](ls::ReplicaContext& replica) {
    expect(!ls::in_cross_replica_context() && ls::get_replica_context() == &replica);
    const int sum = replica.merge_call(
        [](ls::Strategy& all, const ls::PerReplica<int>& ids) {
          expect(ls::in_cross_replica_context());  // once, while both replicas wait
          return all.reduce("sum", ids);
        },
        replica.replica_id_in_sync_group());
    expect(sum == 0 + 1);
  });
  // [contexts]
  expect(code_of([&] { ls::replica_context(); }) == ls::ErrorCode::kFailedPrecondition);
  expect(code_of([&] { strategy.run([&] { strategy.run([] {}); }); }) == ls::ErrorCode::kFailedPrecondition);
  std::thread([] { expect(!ls::has_strategy()); }).join();
}

void values() {
  ls::MirroredStrategy strategy({"CPU:0", "CPU:1"});
  // [values]
  auto ids = strategy.experimental_distribute_values_from_function(
      [](const ls::ValueContext& context) { return torch::tensor(1.0f * context.replica_id_in_sync_group); });
  // Each replica gets its own component of ids; 10.0 is not distributed, all get it.
  ls::PerReplica<torch::Tensor> moved = strategy.run([](torch::Tensor id, double by) { return id + by; }, ids, 10.0);
  expect(is(moved[0], 10) && is(moved[1], 11));
  // The same number on every destination: Mirrored.
  ls::Mirrored<torch::Tensor> sum = strategy.extended().reduce_to("sum", moved, /*destinations=*/moved);
  expect(sum.size() == 2 && is(sum.get(), 21));
  // [values]
  expect(code_of([&] { moved.local(); }) == ls::ErrorCode::kInvalidArgument);
  expect(code_of([&] { strategy.reduce("sum", sum); }) == ls::ErrorCode::kInvalidArgument);
  expect(is(strategy.reduce("mean", sum), 21));
  strategy.run([&](ls::ReplicaContext& replica) { expect(is(moved.local(), 10 + replica.replica_id_in_sync_group())); });
  auto pairs = strategy.run([] { return std::tuple(torch::ones({}), 3); });
  const auto [ones, threes] = strategy.reduce("sum", pairs);
  expect(is(ones, 2) && threes == 6);
  expect(strategy.experimental_local_results(pairs).size() == 2 && strategy.experimental_local_results(5).size() == 1);
}

void variables() {
  ls::MirroredStrategy strategy({"CPU:0", "CPU:1"});
  // [variables]
  auto scope = strategy.scope();
  ls::Variable average(1.0, {.aggregation = ls::VariableAggregation::kMean});
  ls::Variable counter(0.0, {.synchronization = ls::VariableSynchronization::kOnRead, .aggregation = ls::VariableAggregation::kSum});
  strategy.run([&](ls::ReplicaContext& replica) {
    const auto mine = torch::tensor(1.0f + replica.replica_id_in_sync_group());  // 1 and 2
    average.assign_add(mine);  // a meeting point: both components grow by 1.5
    counter.assign_add(mine);  // no meeting: the replica's own component
    expect(is(average, 2.5) && is(counter, mine.item<double>()));
  });
  expect(is(average, 2.5) && is(counter, 3));
  counter.assign(10.0);  // 5 in each component, so that the sum is 10
  expect(is(counter.components()[1], 5) && is(counter, 10));
  // [variables]
}

// Every row of the table: start at 1, replica r adds r + 1; the components and the value across replicas afterwards.
void variable_table() {
  using enum ls::VariableAggregation;
  ls::MirroredStrategy strategy({"CPU:0", "CPU:1"});
  auto scope = strategy.scope();
  const auto after = [&](ls::VariableSynchronization synchronization, ls::VariableAggregation aggregation) {
    ls::Variable v(1.0, {.synchronization = synchronization, .aggregation = aggregation});
    strategy.run([&](ls::ReplicaContext& replica) { v.assign_add(torch::tensor(1.0f + replica.replica_id_in_sync_group())); });
    return v;
  };
  const auto has = [](const ls::Variable& v, double first, double second) {
    return is(v.components()[0], first) && is(v.components()[1], second);
  };
  const auto on_write = ls::VariableSynchronization::kOnWrite;
  const auto on_read = ls::VariableSynchronization::kOnRead;
  expect(has(after(on_write, kNone), 2, 3) && has(after(on_write, kSum), 4, 4));
  expect(has(after(on_write, kMean), 2.5, 2.5) && has(after(on_write, kOnlyFirstReplica), 2, 2));
  for (const auto aggregation : {kNone, kSum, kMean, kOnlyFirstReplica}) expect(has(after(on_read, aggregation), 2, 3));
  expect(is(after(on_read, kSum), 5) && is(after(on_read, kMean), 2.5) && is(after(on_read, kOnlyFirstReplica), 2));
  expect(code_of([&] { after(on_read, kNone).value(); }) == ls::ErrorCode::kInvalidArgument);
  expect(code_of([&] { after(on_read, kSum).assign_add(1.0); }) == ls::ErrorCode::kInvalidArgument);
  expect(is(after(on_read, kMean).assign_add(1.0), 3.5) && is(after(on_write, kSum).assign_add(1.0), 5));

  ls::Variable sum(1.0, {.aggregation = kSum}), integers(torch::zeros({}, torch::kLong), {.synchronization = on_read, .aggregation = kSum});
  expect(code_of([&] { strategy.run([&] { sum.assign(1.0); }); }) == ls::ErrorCode::kInvalidArgument);
  expect(is(integers.assign(7.0), 6));  // 3.5 a component, cut to 3
  expect(code_of([&] { ls::Variable(torch::zeros({}, torch::kLong), {.aggregation = kMean}); }) == ls::ErrorCode::kInvalidArgument);
  expect(is(after(on_read, kSum).saved_value(), 5));
}

void reductions() {
  ls::MirroredStrategy strategy({"CPU:0", "CPU:1"});
  // [reductions]
  // A last batch of 6 rows: replica 0 has 0 1 2 3, replica 1 has 4 5.
  ls::PerReplica<torch::Tensor> rows({torch::arange(4.0), torch::arange(4.0, 6.0)});
  expect(is(strategy.reduce("sum", rows, /*axis=*/0), 15));
  expect(is(strategy.reduce("mean", rows, /*axis=*/0), 2.5));  // 15 / 6 rows; the mean of the two means would be 3
  expect(code_of([&] { strategy.reduce("sum", rows); }) == ls::ErrorCode::kInvalidArgument);  // shapes differ
  expect(strategy.gather(rows, /*axis=*/0).size(0) == 6);
  // [reductions]
  ls::PerReplica<torch::Tensor> integers({torch::tensor(1), torch::tensor(2)});
  expect(strategy.reduce("mean", integers).scalar_type() == torch::kDouble && is(strategy.reduce("mean", integers), 1.5));
  expect(code_of([&] { strategy.reduce("sum", torch::ones({})); }) == ls::ErrorCode::kInvalidArgument);
  expect(is(strategy.reduce("mean", torch::ones({})), 1));
}

void canonical_order() {
  // [order]
  ls::MirroredStrategy strategy({"CPU:0", "CPU:1", "CPU:2", "CPU:3"});
  const std::vector<float> numbers = {1e8f, 1.0f, -1e8f, 1.0f};
  auto values = strategy.run([&](ls::ReplicaContext& replica) {
    auto mine = torch::tensor(numbers[static_cast<std::size_t>(replica.replica_id_in_sync_group())]);
    expect(is(replica.all_reduce("sum", mine), 0));
    return mine;
  });
  expect(is(strategy.reduce("sum", values), 0));  // (1e8 + 1) + (-1e8 + 1); from left to right it would be 1
  // [order]
}

void collectives() {
  ls::MirroredStrategy strategy({"CPU:0", "CPU:1"});
  // [collectives]
  strategy.run([](ls::ReplicaContext& replica) {
    const int id = replica.replica_id_in_sync_group();
    auto x = torch::full({id + 1}, 1.0f * id, torch::requires_grad());  // [0] and [1, 1]
    expect(is(replica.all_gather(x, /*axis=*/0), {0, 1, 1}));
    const auto [rows, ids] = replica.all_reduce("sum", std::tuple(x.size(0), id));  // any structure, leaf by leaf
    expect(rows == 3 && ids == 1);
    replica.all_reduce("sum", x.sum()).backward();  // the gradients of both replicas' results reach x
    expect(is(x.grad()[0], 2));
    replica.barrier();
  });
  // [collectives]
}

void scopes() {
  // [scopes]
  ls::MirroredStrategy strategy({"CPU:0", "CPU:1"}), other({"CPU:0"});
  ls::Variable plain(1.0);
  expect(&ls::get_strategy() == &ls::default_strategy());
  {
    auto scope = strategy.scope();
    ls::Variable mirrored(1.0);
    expect(plain.size() == 1 && mirrored.size() == 2);
    expect(code_of([&] { auto inner = other.scope(); }) == ls::ErrorCode::kFailedPrecondition);
    expect(code_of([&] { strategy.run([&] { plain.assign(2.0); }); }) == ls::ErrorCode::kFailedPrecondition);
  }
  // [scopes]
  expect(is(ls::default_strategy().run([] { return torch::ones({}); })[0], 1));
}

void random_numbers() {
  // [random]
  ls::MirroredStrategy a({"CPU:0", "CPU:1"}, {.seed = 7}), b({"CPU:0", "CPU:1"}, {.seed = 7});
  const auto draw = [] { return torch::rand({3}); };
  auto x = a.run(draw);
  auto y = b.run(draw);
  expect(torch::equal(x[0], y[0]) && torch::equal(x[1], y[1]));  // the same seed and replica: the same numbers
  expect(!torch::equal(x[0], x[1]));                             // every replica has numbers of its own
  // [random]
  a.replicas().manual_seed(7);
  expect(torch::equal(a.run(draw)[1], x[1]));
  torch::manual_seed(7);  // before a strategy without a seed is made: the same as giving it the seed
  ls::MirroredStrategy c({"CPU:0", "CPU:1"});
  torch::manual_seed(8);  // afterwards: only for code outside run()
  expect(torch::equal(c.run(draw)[1], x[1]));
}

using Rows = std::vector<std::vector<std::int64_t>>;  // by step, by replica

Rows rows_of(const ls::DistributedDataset& dataset) {
  Rows steps;
  for (const auto& batch : dataset) {
    steps.emplace_back();
    for (const auto& part : batch) steps.back().push_back(part[0].size(0));
  }
  return steps;
}

void input() {
  // [input]
  ls::MirroredStrategy strategy({"CPU:0", "CPU:1", "CPU:2"});
  auto dataset = ls::data::Dataset::range(5).batch(4);  // [0 1 2 3] [4]
  expect(rows_of(strategy.experimental_distribute_dataset(dataset)) == Rows{{2, 1, 1}, {1, 0, 0}});
  auto from_function = strategy.distribute_datasets_from_function([](const ls::InputContext& context) {
    return ls::data::Dataset::range(5).batch(context.get_per_replica_batch_size(6));  // [0 1] [2 3] [4]
  });
  expect(rows_of(from_function) == Rows{{2, 2, 1}});
  // [input]
  ls::MirroredStrategy two({"CPU:0", "CPU:1"});
  auto batches = ls::data::Dataset::range(6).batch(4);
  expect(rows_of(two.experimental_distribute_dataset(batches)) == Rows{{2, 2}, {1, 1}});
  auto off = batches.with_options({.auto_shard_policy = ls::AutoShardPolicy::kOff});
  expect(rows_of(two.experimental_distribute_dataset(off)) == Rows{{2, 2}, {2, 0}});
  auto joined = ls::data::Dataset::range(6).batch(4).concatenate(ls::data::Dataset::range(2).batch(4));  // 4, 2, 2 rows
  expect(rows_of(strategy.experimental_distribute_dataset(joined)) == Rows{{2, 1, 1}, {1, 1, 0}, {1, 1, 0}});
  const auto scalars = ls::data::Dataset::range(5);
  expect(code_of([&] { strategy.experimental_distribute_dataset(scalars); }) == ls::ErrorCode::kInvalidArgument);
  auto iterator = from_function.make_iterator();
  expect(code_of([&] { strategy.run([&] { iterator.get_next(); }); }) == ls::ErrorCode::kInvalidArgument);
  iterator.get_next();
  expect(code_of([&] { iterator.get_next(); }) == ls::ErrorCode::kOutOfRange);
}

void errors() {
  ls::MirroredStrategy strategy({"CPU:0", "CPU:1"});
  // [errors]
  try {
    strategy.run([](ls::ReplicaContext& replica) {
      if (replica.replica_id_in_sync_group() == 1) throw std::invalid_argument("replica 1's own exception");
      replica.barrier();  // replica 0 waits here, and is let go
    });
    expect(false);
  } catch (const std::invalid_argument&) {  // the cause, with its type; replica 0's kAborted is not shown
  }
  strategy.run([](ls::ReplicaContext& replica) { replica.barrier(); });  // the strategy is as usable as before
  // [errors]
  // [meeting]
  const auto code = code_of([&] {
    strategy.run([](ls::ReplicaContext& replica) {
      if (replica.replica_id_in_sync_group() == 0) replica.barrier();  // replica 1 returns without it
    });
  });
  expect(code == ls::ErrorCode::kFailedPrecondition);
  // [meeting]
  expect(code_of([&] {
           strategy.run([](ls::ReplicaContext& replica) {
             if (replica.replica_id_in_sync_group() == 0) replica.barrier();
             else replica.all_reduce("sum", 1.0);
           });
         }) == ls::ErrorCode::kFailedPrecondition);
  expect(code_of([&] {
           strategy.run([](ls::ReplicaContext& replica) {
             replica.all_reduce("sum", torch::ones({replica.replica_id_in_sync_group() + 1}));
           });
         }) == ls::ErrorCode::kInvalidArgument);
}

void timeouts() {
  // [timeout]
  ls::MirroredStrategy strategy({"CPU:0", "CPU:1"}, {.communication = {.timeout_seconds = 0.05}});
  const auto code = code_of([&] {
    strategy.run([](ls::ReplicaContext& replica) {
      if (replica.replica_id_in_sync_group() == 1) std::this_thread::sleep_for(std::chrono::milliseconds(400));
      replica.barrier();
    });
  });
  expect(code == ls::ErrorCode::kDeadlineExceeded);
  // [timeout]
}

}  // namespace

int main() {
  devices();
  contexts();
  values();
  variables();
  variable_table();
  reductions();
  canonical_order();
  collectives();
  scopes();
  random_numbers();
  input();
  errors();
  timeouts();
  std::cout << (g_wrong == 0 ? "all claims hold\n" : "some claims do not hold\n");
  return g_wrong == 0 ? 0 : 1;
}

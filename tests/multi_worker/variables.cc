#include <lockstep/lockstep.h>
#include <torch/torch.h>

#include <map>

#include "tests/multi_worker/collectives.h"

// Variables whose components are on several workers.

namespace lockstep::testing {
namespace {

using Sync = VariableSynchronization;
using Aggregation = VariableAggregation;
using Make = std::function<torch::Tensor(int replica)>;

const std::map<std::string, Aggregation> kAggregations = {
    {"sum", Aggregation::kSum}, {"mean", Aggregation::kMean}, {"first", Aggregation::kOnlyFirstReplica}};

// What all replicas' values become.
torch::Tensor aggregate(const std::string& how, int n, const Make& make) {
  return how == "sum" ? sum_of(n, make) : how == "mean" ? mean_of(n, make) : make(0);
}

void expect_components(Report& report, const std::string& what, const Variable& variable, const torch::Tensor& wanted) {
  for (const auto& component : variable.components()) report.expect(what, component.detach(), wanted);
}

// This worker's components as a value of its replicas.
PerReplica<torch::Tensor> each_of(const Variable& variable) {
  std::vector<torch::Tensor> values;
  for (const auto& component : variable.components()) values.push_back(component.detach().clone());
  return PerReplica<torch::Tensor>(std::move(values));
}

// Every worker draws other numbers: worker 0's count.
void report_initial_values(MultiWorkerMirroredStrategy& strategy, Report& report) {
  const auto scope = strategy.scope();
  const auto report_one = [&](const std::string& what, const Variable& variable) {
    report.each(what, each_of(variable));
    const auto same = strategy.gather(PerReplica<torch::Tensor>(each_of(variable)), 0);
    report.all(what + " of everybody", same);
  };
  report_one("a drawn tensor", Variable(torch::randn({3})));
  report_one("a drawn initial value", Variable([] { return torch::randn({4}); }));
  report_one("a large one", Variable(torch::randn({500'000})));
  report_one("one of integers", Variable(torch::randint(100, {3}, torch::kLong)));
  report_one("one of half precision", Variable(torch::randn({3}, torch::kDouble).to(torch::kHalf)));
  report_one("one without elements", Variable(torch::randn({0, 3})));
  report_one("one that is synchronised on read",
             Variable(torch::randn({3}), {.synchronization = Sync::kOnRead, .aggregation = Aggregation::kMean}));
  const auto made = strategy.run([] { return Variable(torch::randn({2}), {.name = "inside"}).value().detach().clone(); });
  report.each("made inside run", made);
}

void report_writes(MultiWorkerMirroredStrategy& strategy, Report& report) {
  const auto scope = strategy.scope();
  const int n = strategy.num_replicas_in_sync();
  const Make make = [](int r) { return value_of(r, torch::kFloat, {2, 2}); };
  const auto start = torch::full({2, 2}, 8.0F);
  for (const auto& [how, aggregation] : kAggregations) {
    const auto written = [&](Variable& (Variable::*write)(const torch::Tensor&)) {
      Variable variable(start, {.aggregation = aggregation});
      strategy.run([&](ReplicaContext& context) { (variable.*write)(make(context.replica_id_in_sync_group())); });
      return variable;
    };
    const auto all = aggregate(how, n, make);
    expect_components(report, how + ": assign", written(&Variable::assign), all);
    expect_components(report, how + ": assign_add", written(&Variable::assign_add), start + all);
    expect_components(report, how + ": assign_sub", written(&Variable::assign_sub), start - all);
    // The replica that writes reads what was written.
    Variable variable(start, {.aggregation = aggregation});
    const auto read = strategy.run([&](ReplicaContext& context) {
      return variable.assign(make(context.replica_id_in_sync_group())).value().detach().clone();
    });
    report.expect_each(how + ": read after the write", read, [&](int) { return all; });
    variable.assign(start * 2);
    expect_components(report, how + ": assign across replicas", variable, start * 2);
    variable.assign_add(1.0).assign_sub(torch::ones({2, 2}));
    expect_components(report, how + ": add and subtract across replicas", variable, start * 2);
    report.expect(how + ": read across replicas", variable.read_value().detach(), start * 2);
  }
  Variable own(start);
  strategy.run([&](ReplicaContext& context) { own.assign(make(context.replica_id_in_sync_group())); });
  report.expect_each("none: every replica its own", each_of(own), make);
}

void report_odd_writes(MultiWorkerMirroredStrategy& strategy, Report& report) {
  const auto scope = strategy.scope();
  const int n = strategy.num_replicas_in_sync();
  Variable counter(torch::zeros({2}, torch::kLong), {.aggregation = Aggregation::kSum});
  strategy.run([&](ReplicaContext& context) {
    counter.assign_add(torch::full({2}, context.replica_id_in_sync_group() + 1, torch::kLong));
  });
  expect_components(report, "a sum of integers", counter, torch::full({2}, n * (n + 1) / 2, torch::kLong));
  Variable large(torch::zeros({400'000}), {.aggregation = Aggregation::kMean});
  const Make make = [](int r) { return value_of(r, torch::kFloat, {400'000}); };
  strategy.run([&](ReplicaContext& context) { large.assign(make(context.replica_id_in_sync_group())); });
  expect_components(report, "a mean of a large value", large, mean_of(n, make));

  Variable mean(0.0, {.aggregation = Aggregation::kMean});
  strategy.run([&] { mean.assign_add(3.0); });
  expect_components(report, "a number is its own mean", mean, torch::tensor(3.0F));
  const auto integers =
      code_of_call([] { Variable bad(torch::zeros({2}, torch::kLong), {.aggregation = Aggregation::kMean}); });
  report.expect("a mean of integers", integers, ErrorCode::kInvalidArgument);
  Variable total(2.0, {.aggregation = Aggregation::kSum});
  mean.assign(total);
  expect_components(report, "the value of another variable", mean, torch::tensor(2.0F));
}

// Restored on another number of replicas it has the same value: what is saved is one value.
void report_saved(Report& report, const std::string& what, Variable& variable, const torch::Tensor& wanted) {
  const auto saved = variable.saved_value().detach().clone();
  report.expect(what + ": saved", saved, wanted);
  variable.restore(saved * 3);
  report.expect(what + ": restored", variable.read_value().detach(), wanted * 3);
}

using Scatter = Variable& (Variable::*)(const IndexedSlices&);
const std::map<std::string, Scatter> kScatters = {
    {"scatter_add", &Variable::scatter_add},      {"scatter_sub", &Variable::scatter_sub},
    {"scatter_mul", &Variable::scatter_mul},      {"scatter_div", &Variable::scatter_div},
    {"scatter_min", &Variable::scatter_min},      {"scatter_max", &Variable::scatter_max},
    {"scatter_update", &Variable::scatter_update}};

IndexedSlices rows_of(int replica) {
  return {value_of(replica, torch::kFloat, {2, 2}).abs() + 1,
          torch::tensor({replica % 5, (replica + 1) % 5}, torch::kLong),
          {5, 2}};
}

bool needs_one_writer(const std::string& name) {
  return name == "scatter_min" || name == "scatter_max" || name == "scatter_update";
}

}  // namespace

void report_variables(MultiWorkerMirroredStrategy& strategy, Report& report) {
  report_initial_values(strategy, report);
  report_writes(strategy, report);
  report_odd_writes(strategy, report);
}

void report_on_read(MultiWorkerMirroredStrategy& strategy, Report& report) {
  const auto scope = strategy.scope();
  const int n = strategy.num_replicas_in_sync();
  const Make make = [](int r) { return value_of(r, torch::kFloat, {3}); };
  for (const auto& [how, aggregation] : kAggregations) {
    Variable variable(torch::zeros({3}), {.synchronization = Sync::kOnRead, .aggregation = aggregation});
    strategy.run([&](ReplicaContext& context) { variable.assign_add(make(context.replica_id_in_sync_group())); });
    report.expect_each(how + ": components", each_of(variable), make);
    report.expect(how + ": read", variable.read_value().detach(), aggregate(how, n, make));
    report.expect(how + ": value", variable.value().detach(), aggregate(how, n, make));
    const auto inside = strategy.run([&] { return variable.value().detach().clone(); });
    report.expect_each(how + ": read in replicas", inside, make);
    report_saved(report, how, variable, aggregate(how, n, make));
    variable.assign(torch::full({3}, 10.0F));
    report.expect(how + ": assigned across replicas", variable.read_value().detach(), torch::full({3}, 10.0F));
    const float part = how == "sum" ? 10.0F / static_cast<float>(n) : 10.0F;
    expect_components(report, how + ": components of an assigned value", variable, torch::full({3}, part));
    const auto added = code_of_call([&] { variable.assign_add(torch::ones({3})); });
    report.expect(how + ": add across replicas", added,
                  how == "sum" ? std::optional(ErrorCode::kInvalidArgument) : std::nullopt);
  }
  Variable none(torch::zeros({3}), {.synchronization = Sync::kOnRead});
  strategy.run([&](ReplicaContext& context) { none.assign(make(context.replica_id_in_sync_group())); });
  report.expect_each("none: components", each_of(none), make);
  report.expect("none: read", code_of_call([&] { none.read_value(); }), ErrorCode::kInvalidArgument);

  Variable count(torch::zeros({}, torch::kLong), {.synchronization = Sync::kOnRead, .aggregation = Aggregation::kSum});
  for (int step = 0; step < 3; ++step)
    strategy.run(
        [&](ReplicaContext& context) { count.assign_add(torch::tensor(context.replica_id_in_sync_group(), torch::kLong)); });
  report.expect("a count", count.read_value(), torch::tensor(3 * n * (n - 1) / 2, torch::kLong));
  report.expect("a count reduced by the strategy", strategy.reduce("sum", count),
                torch::tensor(3 * n * (n - 1) / 2, torch::kLong));
}

void report_scatters(MultiWorkerMirroredStrategy& strategy, Report& report) {
  const auto scope = strategy.scope();
  const int n = strategy.num_replicas_in_sync();
  const auto start = torch::full({5, 2}, 4.0F);
  for (const auto& [name, scatter] : kScatters) {
    for (const auto& [how, aggregation] : kAggregations) {
      const auto what = str(name, " with ", how);
      Variable variable(start, {.aggregation = aggregation});
      if (needs_one_writer(name) && how != "first") continue;
      strategy.run(
          [&, write = scatter](ReplicaContext& context) { (variable.*write)(rows_of(context.replica_id_in_sync_group())); });
      report.each(what + " in replicas", each_of(variable));
      if (name == "scatter_add")
        expect_components(report, what + ", the rows", variable,
                          start + aggregate(how, n, [](int r) { return to_dense(rows_of(r)); }));
      variable.assign(start);
      (variable.*scatter)(rows_of(1));
      report.each(what + " across replicas", each_of(variable));
    }
    Variable own(start);
    strategy.run([&, write = scatter](ReplicaContext& context) { (own.*write)(rows_of(context.replica_id_in_sync_group())); });
    report.each(name + " of its own", each_of(own));
  }
}

}  // namespace lockstep::testing

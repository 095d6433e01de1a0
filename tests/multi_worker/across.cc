#include <lockstep/lockstep.h>
#include <torch/torch.h>

#include <map>
#include <tuple>

#include "tests/multi_worker/collectives.h"

// What is done across replicas, outside run() or in merge_call, and who is who.

namespace lockstep::testing {
namespace {

using Make = std::function<torch::Tensor(int replica)>;

PerReplica<torch::Tensor> make_each(Strategy& strategy, const Make& make) {
  return strategy.run([&](ReplicaContext& context) { return make(context.replica_id_in_sync_group()); });
}

void report_reduce(MultiWorkerMirroredStrategy& strategy, Report& report) {
  const int n = strategy.num_replicas_in_sync();
  for (const auto type :
       {torch::kFloat, torch::kHalf, torch::kBFloat16, torch::kInt, torch::kUInt8, torch::kBool, torch::kComplexDouble}) {
    const Make make = [=](int r) { return value_of(r, type, {3, 2}); };
    report.expect(lockstep::str("sum of ", type), strategy.reduce("sum", make_each(strategy, make)), sum_of(n, make));
    report.expect(lockstep::str("mean of ", type), strategy.reduce("mean", make_each(strategy, make)), mean_of(n, make));
  }
  const Make large = [](int r) { return value_of(r, torch::kFloat, {1'310'720}); };
  report.expect("sum of 5 MB", strategy.reduce("sum", make_each(strategy, large)), sum_of(n, large));
  const Make none = [](int) { return torch::zeros({0, 4}); };
  report.expect("sum of nothing", strategy.reduce("sum", make_each(strategy, none)), torch::zeros({0, 4}));
  const Make transposed = [](int r) { return value_of(r, torch::kDouble, {30, 20}).t(); };
  report.expect("sum of transposed ones", strategy.reduce("sum", make_each(strategy, transposed)), sum_of(n, transposed));
}

// Replica r has r rows: a mean weighs elements.
void report_axis(MultiWorkerMirroredStrategy& strategy, Report& report) {
  const int n = strategy.num_replicas_in_sync();
  for (const auto type : {torch::kFloat, torch::kDouble, torch::kLong}) {
    const Make make = [=](int r) { return value_of(r, type, {r, 3}); };
    const auto each = make_each(strategy, make);
    std::vector<torch::Tensor> rows;
    for (int r = 0; r < n; ++r) rows.push_back(make(r));
    const auto all = torch::cat(rows, 0);
    const auto mean_type = type == torch::kFloat ? torch::kFloat : torch::kDouble;
    const auto mean = [&](const std::vector<std::int64_t>& axes) { return all.to(torch::kDouble).mean(axes).to(mean_type); };
    report.expect(lockstep::str("sum over the rows of ", type), strategy.reduce("sum", each, 0), all.sum(0, false, type));
    report.expect(lockstep::str("mean over the rows of ", type), strategy.reduce("mean", each, 0), mean({0}));
    report.expect(lockstep::str("mean over rows from the end of ", type), strategy.reduce("mean", each, -2), mean({0}));
    report.expect(lockstep::str("mean over both axes of ", type), strategy.reduce("mean", each, Axis{0, 1}), mean({0, 1}));
  }
  const auto empty = make_each(strategy, [](int) { return torch::zeros({0, 2}); });
  report.expect("sum over no rows", strategy.reduce("sum", empty, 0), torch::zeros({2}));
  report.expect("mean over no rows", strategy.reduce("mean", empty, 0),
                torch::full({2}, std::numeric_limits<float>::quiet_NaN()));
  const auto each = make_each(strategy, [](int) { return torch::ones({2}); });
  report.expect("an axis that is not there", code_of_call([&] { strategy.reduce("sum", each, 1); }),
                ErrorCode::kInvalidArgument);
}

void report_kinds(MultiWorkerMirroredStrategy& strategy, Report& report) {
  const int n = strategy.num_replicas_in_sync();
  using Both = std::pair<torch::Tensor, std::map<std::string, torch::Tensor>>;
  const auto both = strategy.run([](ReplicaContext& context) {
    const int r = context.replica_id_in_sync_group();
    return Both{value_of(r, torch::kFloat, {2}), {{"x", value_of(r, torch::kLong, {3})}}};
  });
  const auto sums = strategy.reduce("sum", both);
  report.expect("a pair's first", sums.first, sum_of(n, [](int r) { return value_of(r, torch::kFloat, {2}); }));
  report.expect("a pair's x", sums.second.at("x"), sum_of(n, [](int r) { return value_of(r, torch::kLong, {3}); }));

  const auto numbers = strategy.run([](ReplicaContext& context) { return 1.5 * context.replica_id_in_sync_group(); });
  report.expect("sum of numbers", str(strategy.reduce("sum", numbers)), str(0.75 * n * (n - 1)));

  const auto rows = strategy.run([](ReplicaContext& context) {
    const int r = context.replica_id_in_sync_group();
    return IndexedSlices{value_of(r, torch::kFloat, {r, 2}), torch::arange(r), {4, 2}};
  });
  const auto dense = [](int r) { return to_dense({value_of(r, torch::kFloat, {r, 2}), torch::arange(r), {4, 2}}); };
  report.expect("sum of rows", to_dense(strategy.reduce("sum", rows)), sum_of(n, dense));
  report.expect("mean of rows", to_dense(strategy.reduce("mean", rows)), mean_of(n, dense));

  const auto mirrored = strategy.extended().broadcast_to(torch::tensor({2.0F, 3.0F}));
  report.expect("mean of equal copies", strategy.reduce("mean", mirrored), torch::tensor({2.0F, 3.0F}));
  report.expect("sum of equal copies", code_of_call([&] { strategy.reduce("sum", mirrored); }), ErrorCode::kInvalidArgument);
}

void report_reduce_to(MultiWorkerMirroredStrategy& strategy, Report& report) {
  const int n = strategy.num_replicas_in_sync();
  const Make make = [](int r) { return value_of(r, torch::kFloat, {3}); };
  const Make other = [](int r) { return value_of(r, torch::kDouble, {2}); };
  const auto first = make_each(strategy, make);
  const auto second = make_each(strategy, other);
  for (const auto& copy : strategy.extended().reduce_to("sum", first, first)) report.expect("reduce_to", copy, sum_of(n, make));
  report.expect("reduce_to a device", strategy.extended().reduce_to("mean", first, "/CPU:0").get(), mean_of(n, make));
  const auto batch = strategy.extended().batch_reduce_to("sum", {{first, first}, {second, "/CPU:0"}});
  report.expect("the first of a batch", batch.at(0).get(), sum_of(n, make));
  report.expect("the second of a batch", batch.at(1).get(), sum_of(n, other));
}

void report_gather(MultiWorkerMirroredStrategy& strategy, Report& report) {
  const int n = strategy.num_replicas_in_sync();
  const auto all = [&](std::int64_t axis, const Make& make) {
    std::vector<torch::Tensor> each;
    for (int r = 0; r < n; ++r) each.push_back(make(r));
    return torch::cat(each, axis);
  };
  const Make rows = [](int r) { return value_of(r, torch::kFloat, {3 - r % 3, 2}); };
  const Make columns = [](int r) { return value_of(r, torch::kHalf, {2, r}); };
  const Make large = [](int r) { return value_of(r, torch::kLong, {100'000 + r}); };
  report.expect("uneven rows", strategy.gather(make_each(strategy, rows), 0), all(0, rows));
  report.expect("uneven columns", strategy.gather(make_each(strategy, columns), 1), all(1, columns));
  report.expect("large values", strategy.gather(make_each(strategy, large), 0), all(0, large));
  const auto slices = strategy.run([](ReplicaContext& context) {
    const int r = context.replica_id_in_sync_group();
    return IndexedSlices{torch::full({1, 2}, r + 1.0F), torch::tensor({r % 2}), {2, 2}};
  });
  report.expect("rows made dense", strategy.gather(slices, 0), all(0, [](int r) {
                  return to_dense({torch::full({1, 2}, r + 1.0F), torch::tensor({r % 2}), {2, 2}});
                }));
  const auto bad = make_each(strategy, [](int r) { return torch::ones({2, r == 0 ? 3 : 2}); });
  report.expect("rows of different width", code_of_call([&] { strategy.gather(bad, 0); }), ErrorCode::kInvalidArgument);
}

// Each worker's own replicas meet; what they do together with the other workers is a collective.
void report_merge_call(MultiWorkerMirroredStrategy& strategy, Report& report) {
  const int n = strategy.num_replicas_in_sync();
  const Make make = [](int r) { return value_of(r, torch::kFloat, {2}); };
  const auto sums = strategy.run([&](ReplicaContext& context) {
    return context.merge_call([](Strategy& all, const PerReplica<torch::Tensor>& each) { return all.reduce("sum", each); },
                              make(context.replica_id_in_sync_group()));
  });
  report.expect_each("a reduction in merge_call", sums, [&](int) { return sum_of(n, make); });
  const auto own = strategy.run([&](ReplicaContext& context) {
    return context.merge_call([](Strategy&, const PerReplica<torch::Tensor>& each) { return each; },
                              make(context.replica_id_in_sync_group()));
  });
  report.expect_each("what merge_call hands out", own, make);
  const auto count = strategy.run([](ReplicaContext& context) {
    return context.merge_call([](Strategy&, const PerReplica<int>& each) { return static_cast<int>(each.size()); }, 0);
  });
  report.check("components in merge_call", str(count[0]), str(strategy.replicas().size()));
  for (int round = 0; round < 3; ++round) strategy.run([](ReplicaContext& context) { context.barrier(); });
}

void report_update(MultiWorkerMirroredStrategy& strategy, Report& report) {
  const auto scope = strategy.scope();
  const int n = strategy.num_replicas_in_sync();
  Variable variable(torch::tensor({1.0F, 2.0F}));
  strategy.extended().update(
      variable, [](torch::Tensor& component, const torch::Tensor& by) { component.add_(by); }, torch::tensor(10.0F));
  for (const auto& component : variable.components())
    report.expect("update across replicas", component, torch::tensor({11.0F, 12.0F}));
  strategy.run([&](ReplicaContext& context) {
    const auto sum = context.all_reduce("sum", torch::tensor(1.0F));
    context.strategy().extended().update(
        variable, [](torch::Tensor& component, const torch::Tensor& by) { component.add_(by); }, sum);
  });
  for (const auto& component : variable.components())
    report.expect("update in replicas", component, torch::tensor({11.0F + n, 12.0F + n}));
}

}  // namespace

void report_across(MultiWorkerMirroredStrategy& strategy, Report& report) {
  report_reduce(strategy, report);
  report_axis(strategy, report);
  report_kinds(strategy, report);
  report_reduce_to(strategy, report);
  report_gather(strategy, report);
  report_merge_call(strategy, report);
  report_update(strategy, report);
}

void report_contexts(MultiWorkerMirroredStrategy& strategy, Report& report) {
  const int n = strategy.num_replicas_in_sync();
  const int first = strategy.replicas().first_replica();
  report.expect("replicas in sync", str(n), "4");
  const auto ids = strategy.run([](ReplicaContext& context) {
    return lockstep::str(context.replica_id_in_sync_group(), " of ", context.num_replicas_in_sync());
  });
  report.each("ids", ids);
  const auto local =
      strategy.run([&](ReplicaContext& context) { return context.replica_id_in_sync_group() - context.local_replica_id(); });
  for (const int one : local) report.check("the first replica here", str(one), str(first));

  const auto values = strategy.experimental_distribute_values_from_function([](const ValueContext& context) {
    return torch::tensor({context.replica_id_in_sync_group, context.num_replicas_in_sync}, torch::kLong);
  });
  report.expect_each("values from a function", values, [&](int r) { return torch::tensor({r, n}, torch::kLong); });
  const auto doubled = strategy.run([](const torch::Tensor& value) { return value * 2; }, values);
  report.expect_each("values as arguments", doubled, [&](int r) { return torch::tensor({2 * r, 2 * n}, torch::kLong); });

  const auto results = strategy.experimental_local_results(values);
  report.check("local results", str(results.size(), " from ", results[0][0].item<int>()),
               str(strategy.replicas().size(), " from ", first));
  report.check("who saves", str(strategy.extended().should_checkpoint(), strategy.extended().should_save_summary()),
               str(strategy.worker_rank() == 0, strategy.worker_rank() == 0));
  report.check("who is chief", str(strategy.is_chief()), str(strategy.worker_rank() == 0));
  report.check("devices", str(strategy.extended().worker_devices().size()), str(strategy.replicas().size()));
  const auto prefix = str("/job:worker/replica:0/task:", strategy.worker_rank());
  for (const auto& device : strategy.extended().worker_devices())
    report.check("a device's name", device.substr(0, prefix.size()), prefix);
  report.check("the resolver's task",
               str(*strategy.cluster_resolver()->task_type(), " ", *strategy.cluster_resolver()->task_id()),
               str("worker ", strategy.worker_rank()));
  if (strategy.num_workers() > 1)
    report.check("a program for each worker", str(strategy.extended().experimental_between_graph()), "1");
  const auto random = strategy.run([] { return torch::rand({2}); });
  report.each("random numbers", random);
}

}  // namespace lockstep::testing

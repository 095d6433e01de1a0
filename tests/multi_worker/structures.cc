#include <lockstep/lockstep.h>
#include <torch/torch.h>

#include <map>
#include <tuple>

#include "tests/multi_worker/collectives.h"

// ReplicaContext::all_reduce of structures, of many tensors at once, and of rows (IndexedSlices).

namespace lockstep::testing {
namespace {

// What a program of its own may give: a plain struct.
struct Statistics {
  torch::Tensor total;
  std::vector<torch::Tensor> parts;
  std::map<std::string, torch::Tensor> named;
  double number;
  std::int64_t count;
};

Statistics statistics_of(int replica) {
  const auto value = [&](torch::ScalarType type, at::IntArrayRef sizes) { return value_of(replica, type, sizes); };
  return {value(torch::kFloat, {3}),
          {value(torch::kHalf, {2, 2}), value(torch::kLong, {4})},
          {{"left", value(torch::kDouble, {2})}, {"right", value(torch::kFloat, {0, 2})}},
          0.5 * replica,
          replica + 1};
}

IndexedSlices rows_of(int replica, torch::ScalarType index_type = torch::kLong) {
  // Replica 2 has none; the others' overlap and repeat.
  const std::int64_t count = replica == 2 ? 0 : replica + 1;
  const auto indices = (torch::arange(count, torch::kLong) * 2 + replica).remainder(6).to(index_type);
  return {value_of(replica, torch::kFloat, {count, 3}), indices, {6, 3}};
}

void report_struct(MultiWorkerMirroredStrategy& strategy, Report& report) {
  const int n = strategy.num_replicas_in_sync();
  const auto sums = strategy.run(
      [](ReplicaContext& context) { return context.all_reduce("sum", statistics_of(context.replica_id_in_sync_group())); });
  for (const auto& sum : sums) {
    report.expect("a struct's tensor", sum.total, sum_of(n, [](int r) { return statistics_of(r).total; }));
    report.expect("a struct's first", sum.parts[0], sum_of(n, [](int r) { return statistics_of(r).parts[0]; }));
    report.expect("a struct's second", sum.parts[1], sum_of(n, [](int r) { return statistics_of(r).parts[1]; }));
    report.expect("a struct's left", sum.named.at("left"), sum_of(n, [](int r) { return statistics_of(r).named.at("left"); }));
    report.expect("a struct's right", sum.named.at("right"), torch::zeros({0, 2}));
    report.expect("a struct's number", str(sum.number), str(0.25 * n * (n - 1)));
    report.expect("a struct's count", str(sum.count), str(n * (n + 1) / 2));
  }
}

// Dense values and rows in one call keep their places.
void report_mixed(MultiWorkerMirroredStrategy& strategy, Report& report) {
  const int n = strategy.num_replicas_in_sync();
  for (const std::string op : {"sum", "mean"}) {
    const auto results = strategy.run([&](ReplicaContext& context) {
      const int r = context.replica_id_in_sync_group();
      return context.all_reduce(op.c_str(),
                                std::tuple(value_of(r, torch::kFloat, {2}), rows_of(r), value_of(r, torch::kDouble, {})));
    });
    const auto combine = [&](const std::function<torch::Tensor(int)>& value) {
      return op == "sum" ? sum_of(n, value) : mean_of(n, value);
    };
    for (const auto& [first, rows, last] : results) {
      report.expect(op + " of a value before rows", first, combine([](int r) { return value_of(r, torch::kFloat, {2}); }));
      report.expect(op + " of rows", to_dense(rows), combine([](int r) { return to_dense(rows_of(r)); }));
      report.all(op + " of rows as they came", rows);
      report.expect(op + " of a value after rows", last, combine([](int r) { return value_of(r, torch::kDouble, {}); }));
    }
  }
}

// Rows with short indices, rows of no replica, and rows so long that they go by themselves.
void report_rows(MultiWorkerMirroredStrategy& strategy, Report& report) {
  const int n = strategy.num_replicas_in_sync();
  const auto reduce = [&](const std::function<IndexedSlices(int)>& make) {
    return strategy.run(
        [&](ReplicaContext& context) { return context.all_reduce("sum", make(context.replica_id_in_sync_group())); });
  };
  const auto none = [](int) { return IndexedSlices{torch::zeros({0, 3}), torch::zeros({0}, torch::kLong), {6, 3}}; };
  const auto large = [](int r) {
    return IndexedSlices{value_of(r, torch::kFloat, {5000, 16}), torch::arange(5000).remainder(r + 7), {100, 16}};
  };
  for (const auto& rows : reduce([](int r) { return rows_of(r, torch::kInt); })) {
    report.expect("rows with int32 indices", to_dense(rows), sum_of(n, [](int r) { return to_dense(rows_of(r)); }));
    report.expect("the dtype of indices", lockstep::str(rows.indices.scalar_type()), "Int");
  }
  for (const auto& rows : reduce(none)) report.expect("no rows", to_dense(rows), torch::zeros({6, 3}));
  for (const auto& rows : reduce(large)) {
    report.expect("the number of many rows", str(rows.indices.numel()), str(5000 * n));
    report.all("many rows", rows.values);
  }
}

// Interleaved dtypes, in packs of different sizes: what comes does not depend on them.
void report_many(MultiWorkerMirroredStrategy& strategy, Report& report) {
  constexpr int kCount = 200;
  const int n = strategy.num_replicas_in_sync();
  const std::array types = {torch::kFloat, torch::kLong, torch::kHalf, torch::kDouble};
  const auto make = [&](int replica, int k) {
    return value_of(replica * 1000 + k, types[static_cast<std::size_t>(k) % types.size()], {k % 13});
  };
  for (const int pack : {0, 1, 100, 1'000'000}) {
    const auto sums = strategy.run([&](ReplicaContext& context) {
      std::vector<torch::Tensor> mine;
      for (int k = 0; k < kCount; ++k) mine.push_back(make(context.replica_id_in_sync_group(), k));
      return context.all_reduce("sum", mine, {.bytes_per_pack = pack});
    });
    for (const auto& sum : sums) {
      int right = 0;
      for (int k = 0; k < kCount; ++k)
        right += is_close(sum[static_cast<std::size_t>(k)], sum_of(n, [&](int r) { return make(r, k); }));
      report.expect(str("many tensors in packs of ", pack, " bytes"), str(right, " right"), str(kCount, " right"));
      report.all(str("bits of many tensors in packs of ", pack, " bytes"), str(digest(sum)));
    }
  }
}

}  // namespace

void report_structures(MultiWorkerMirroredStrategy& strategy, Report& report) {
  report_struct(strategy, report);
  report_mixed(strategy, report);
  report_rows(strategy, report);
  report_many(strategy, report);
}

}  // namespace lockstep::testing

#include <lockstep/lockstep.h>
#include <torch/torch.h>

#include <array>
#include <map>

#include "tests/multi_worker/collectives.h"

// ReplicaContext::all_gather, and gradients through collectives.

namespace lockstep::testing {
namespace {

using Make = std::function<torch::Tensor(int replica)>;

torch::Tensor gathered(int replicas, std::int64_t axis, const Make& make) {
  std::vector<torch::Tensor> all;
  for (int r = 0; r < replicas; ++r) all.push_back(make(r).contiguous());
  return torch::cat(all, axis);
}

void report_gather(MultiWorkerMirroredStrategy& strategy, Report& report, const std::string& what, std::int64_t axis,
                   const Make& make) {
  const auto found =
      strategy.run([&](ReplicaContext& context) { return context.all_gather(make(context.replica_id_in_sync_group()), axis); });
  report.expect_each(what, found, [&](int) { return gathered(strategy.num_replicas_in_sync(), axis, make); });
}

// The sum of weight * gather or reduction, differentiated by each replica's x.
PerReplica<torch::Tensor> gradients(Strategy& strategy, const Make& make,
                                    const std::function<torch::Tensor(ReplicaContext&, const torch::Tensor&)>& function) {
  return strategy.run([&](ReplicaContext& context) {
    const int r = context.replica_id_in_sync_group();
    const auto x = make(r).set_requires_grad(true);
    const auto y = function(context, x) * (r + 1.0);
    return torch::autograd::grad({y.sum()}, {x})[0];
  });
}

// d2/dx2 of sum(c * all_reduce(x^2)), which is 2 * (the sum of all c).
void report_second_gradient(MultiWorkerMirroredStrategy& strategy, Report& report) {
  const int n = strategy.num_replicas_in_sync();
  const auto second = strategy.run([&](ReplicaContext& context) {
    const int r = context.replica_id_in_sync_group();
    const auto x = value_of(r, torch::kDouble, {3}).set_requires_grad(true);
    const auto y = (context.all_reduce("sum", x * x) * (r + 1.0)).sum();
    const auto first = torch::autograd::grad({y}, {x}, {}, /*retain_graph=*/true, /*create_graph=*/true)[0];
    return torch::autograd::grad({first.sum()}, {x})[0];
  });
  report.expect_each("the second gradient of a sum", second,
                     [&](int) { return torch::full({3}, 1.0 * n * (n + 1), torch::kDouble); });
}

}  // namespace

void report_all_gather(MultiWorkerMirroredStrategy& strategy, Report& report) {
  for (const auto type : {torch::kFloat, torch::kDouble, torch::kHalf, torch::kBFloat16, torch::kInt8, torch::kLong,
                          torch::kBool, torch::kComplexFloat})
    report_gather(strategy, report, lockstep::str("rows of ", type), 0, [=](int r) { return value_of(r, type, {2, 3}); });
  const auto floats = [](int r, at::IntArrayRef sizes) { return value_of(r, torch::kFloat, sizes); };
  report_gather(strategy, report, "columns", 1, [&](int r) { return floats(r, {2, 3}); });
  report_gather(strategy, report, "uneven rows", 0, [&](int r) { return floats(r, {r + 1, 3}); });
  report_gather(strategy, report, "uneven columns", 1, [&](int r) { return floats(r, {2, 2 * r, 2}); });
  report_gather(strategy, report, "rows of all but one", 0, [&](int r) { return floats(r, {r == 1 ? 0 : 2, 3}); });
  report_gather(strategy, report, "no rows", 0, [&](int r) { return floats(r, {0, 3}); });
  report_gather(strategy, report, "large uneven rows", 0, [&](int r) { return floats(r, {100'000 + r, 5}); });
  report_gather(strategy, report, "transposed rows", 0, [&](int r) { return floats(r, {30, 40}).t(); });
  report_gather(strategy, report, "conjugated rows", 0, [](int r) { return value_of(r, torch::kComplexDouble, {4}).conj(); });

  using Named = std::map<std::string, torch::Tensor>;
  const auto named = strategy.run([&](ReplicaContext& context) {
    const int r = context.replica_id_in_sync_group();
    return context.all_gather(Named{{"a", floats(r, {r + 1})}, {"b", value_of(r, torch::kLong, {2})}}, 0);
  });
  for (const auto& one : named) {
    report.expect("a map's a", one.at("a"),
                  gathered(strategy.num_replicas_in_sync(), 0, [&](int r) { return floats(r, {r + 1}); }));
    report.expect("a map's b", one.at("b"),
                  gathered(strategy.num_replicas_in_sync(), 0, [](int r) { return value_of(r, torch::kLong, {2}); }));
  }
}

void report_gradients(MultiWorkerMirroredStrategy& strategy, Report& report) {
  const int n = strategy.num_replicas_in_sync();
  const double total = n * (n + 1) / 2.0;
  const Make even = [](int r) { return value_of(r, torch::kDouble, {4}); };
  const Make uneven = [](int r) { return value_of(r, torch::kDouble, {r, 2}); };
  report.expect_each("of a sum", gradients(strategy, even, [](auto& context, auto& x) { return context.all_reduce("sum", x); }),
                     [&](int) { return torch::full({4}, total, torch::kDouble); });
  report.expect_each("of a mean",
                     gradients(strategy, even, [](auto& context, auto& x) { return context.all_reduce("mean", x); }),
                     [&](int) { return torch::full({4}, total / n, torch::kDouble); });
  report.expect_each("of a gather", gradients(strategy, even, [](auto& context, auto& x) { return context.all_gather(x, 0); }),
                     [&](int) { return torch::full({4}, total, torch::kDouble); });
  report.expect_each("of an uneven gather",
                     gradients(strategy, uneven, [](auto& context, auto& x) { return context.all_gather(x, 0); }), [&](int r) {
                       return torch::full({r, 2}, total, torch::kDouble);
                     });
  // x goes through a gather of squares and a sum of that: n times the sum of all c, times 2x.
  report.expect_each(
      "of a chain",
      gradients(strategy, even, [](auto& context, auto& x) { return context.all_reduce("sum", context.all_gather(x * x, 0)); }),
      [&](int r) { return even(r) * 2 * total * n; });
  report.expect_each("of a large sum",
                     gradients(
                         strategy, [](int r) { return value_of(r, torch::kDouble, {200'000}); },
                         [](auto& context, auto& x) { return context.all_reduce("sum", x); }),
                     [&](int) { return torch::full({200'000}, total, torch::kDouble); });
  report_second_gradient(strategy, report);
}

}  // namespace lockstep::testing

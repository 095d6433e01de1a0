#include <lockstep/lockstep.h>
#include <torch/torch.h>

#include <array>
#include <map>
#include <tuple>

#include "tests/multi_worker/collectives.h"

// ReplicaContext::all_reduce, of tensors, of structures and of rows.

namespace lockstep::testing {
namespace {

using torch::indexing::None;
using torch::indexing::Slice;

constexpr std::array kTypes = {torch::kFloat, torch::kDouble, torch::kHalf,         torch::kBFloat16,
                               torch::kInt8,  torch::kUInt8,  torch::kShort,        torch::kInt,
                               torch::kLong,  torch::kBool,   torch::kComplexFloat, torch::kComplexDouble};

using Make = std::function<torch::Tensor(int replica)>;

PerReplica<torch::Tensor> reduce_each(Strategy& strategy, const char* op, const Make& make,
                                      const CommunicationOptions& options = {}) {
  return strategy.run(
      [&](ReplicaContext& context) { return context.all_reduce(op, make(context.replica_id_in_sync_group()), options); });
}

// The sum and the mean of make(0), make(1), ... must come to every replica.
void report_both(MultiWorkerMirroredStrategy& strategy, Report& report, const std::string& what, const Make& make) {
  const int n = strategy.num_replicas_in_sync();
  const auto sum = sum_of(n, make);
  const auto mean = mean_of(n, make);
  report.expect_each(str("sum of ", what), reduce_each(strategy, "sum", make), [&](int) { return sum; });
  report.expect_each(str("mean of ", what), reduce_each(strategy, "mean", make), [&](int) { return mean; });
}

void report_types(MultiWorkerMirroredStrategy& strategy, Report& report) {
  for (const auto type : kTypes) {
    for (const std::vector<std::int64_t>& sizes : std::vector<std::vector<std::int64_t>>{{}, {0}, {3, 0}, {5}, {33, 70}})
      report_both(strategy, report, lockstep::str(type, at::IntArrayRef(sizes)),
                  [&](int r) { return value_of(r, type, sizes); });
  }
}

// 5 MB, and sizes around what engines cut their messages into.
void report_sizes(MultiWorkerMirroredStrategy& strategy, Report& report) {
  const auto report_one = [&](torch::ScalarType type, std::int64_t count) {
    report_both(strategy, report, lockstep::str(count, " of ", type), [=](int r) { return value_of(r, type, {count}); });
  };
  for (const std::int64_t count : {749, 750, 751, 3000, 65'537, 1'310'723}) report_one(torch::kFloat, count);
  report_one(torch::kHalf, 2'621'441);
  report_one(torch::kComplexDouble, 65'537);
  report_one(torch::kUInt8, 1'000'003);
}

void report_strides(MultiWorkerMirroredStrategy& strategy, Report& report) {
  const std::map<std::string, Make> makes = {
      {"a transposed matrix",
       [](int r) {
         return value_of(r, torch::kFloat, {40, 30}).t();
       }},
      {"every third column",
       [](int r) {
         return value_of(r, torch::kFloat, {40, 31}).index({Slice(), Slice(1, None, 3)});
       }},
      {"one row many times",
       [](int r) {
         return value_of(r, torch::kFloat, {1, 25}).expand({40, 25});
       }},
      {"one number many times", [](int r) { return value_of(r, torch::kLong, {}).expand({7}); }},
      {"channels last",
       [](int r) {
         return value_of(r, torch::kFloat, {4, 3, 8, 5}).contiguous(torch::MemoryFormat::ChannelsLast);
       }},
      {"a part of a larger one",
       [](int r) {
         return value_of(r, torch::kDouble, {100, 9}).slice(0, 20, 60);
       }},
      {"a conjugate", [](int r) { return value_of(r, torch::kComplexFloat, {20}).conj(); }},
      {"an imaginary part", [](int r) { return torch::imag(value_of(r, torch::kComplexFloat, {20})); }},
      // A copy in other strides in every replica: the values count, not the places.
      {"strides of its own", [](int r) {
         const auto value = value_of(r, torch::kFloat, {40, 30});
         return r % 2 == 0 ? value : value.t().contiguous().t();
       }}};
  for (const auto& [what, make] : makes) report_both(strategy, report, what, make);
}

void report_in_place(MultiWorkerMirroredStrategy& strategy, Report& report) {
  const int n = strategy.num_replicas_in_sync();
  const Make make = [](int r) { return value_of(r, torch::kFloat, {100'000}); };
  for (const char* op : {"sum", "mean"}) {
    const auto reduced = strategy.run([&](ReplicaContext& context) {
      auto mine = make(context.replica_id_in_sync_group());
      const auto* before = mine.data_ptr();
      context.all_reduce_(op, mine);
      return mine.data_ptr() == before ? mine : torch::Tensor();
    });
    report.expect_each(lockstep::str(op, " in place"), reduced,
                       [&](int) { return *op == 's' ? sum_of(n, make) : mean_of(n, make); });
  }
}

// ((v0 + v1) + (v2 + v3)): the order is a promise, and rounding shows it.
void report_order(MultiWorkerMirroredStrategy& strategy, Report& report) {
  if (strategy.num_replicas_in_sync() != 4) return;
  const Make make = [](int r) { return value_of(r, torch::kFloat, {5000}) * std::pow(1000.0, r); };
  const auto wanted = (make(0) + make(1)) + (make(2) + make(3));
  const auto found = reduce_each(strategy, "sum", make);
  for (const auto& sum : found)
    report.expect("the order of a sum", torch::equal(sum, wanted) ? "canonical" : "another", "canonical");
}

// Values that no rounding changes, NaN and infinities among them.
void report_specials(MultiWorkerMirroredStrategy& strategy, Report& report) {
  const double inf = std::numeric_limits<double>::infinity();
  const double nan = std::numeric_limits<double>::quiet_NaN();
  report_both(strategy, report, "infinities", [=](int r) {
    return torch::tensor({r == 1 ? inf : 1.0, r == 1 ? inf : r == 2 ? -inf : 1.0, r == 3 ? nan : 1.0, -0.0});
  });
  report_both(strategy, report, "small integers that fill their type",
              [](int r) { return torch::full({9}, r == 0 ? 120 : -30, torch::kInt8); });
}

}  // namespace

void report_all_reduce(MultiWorkerMirroredStrategy& strategy, Report& report) {
  report_types(strategy, report);
  report_sizes(strategy, report);
  report_strides(strategy, report);
  report_in_place(strategy, report);
  report_order(strategy, report);
  report_specials(strategy, report);
}

}  // namespace lockstep::testing

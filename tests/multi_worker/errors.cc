#include <lockstep/lockstep.h>
#include <torch/torch.h>

#include <iostream>
#include <map>
#include <sstream>

#include "tests/multi_worker/collectives.h"
#include "tests/multi_worker/scenarios.h"

// Calls that do not fit together, or that nobody may make: all workers get the same code.

namespace lockstep::testing {
namespace {

using Aggregation = VariableAggregation;

// What is wrong, who does it, and the code that everybody gets.
struct Mistake {
  std::string what;
  ErrorCode code;
  std::function<void(ReplicaContext& context, bool is_odd)> body;
};

constexpr auto kInvalid = ErrorCode::kInvalidArgument;

torch::Tensor ones(at::IntArrayRef sizes, torch::ScalarType type = torch::kFloat) { return torch::ones(sizes, type); }

// One replica gives something else than the others.
const std::vector<Mistake>& odd_values() {
  using Named = std::map<std::string, torch::Tensor>;
  static const std::vector<Mistake> mistakes = {
      {"another shape", kInvalid, [](auto& context, bool is_odd) { context.all_reduce("sum", ones({is_odd ? 3 : 2})); }},
      {"another shape of a large value", kInvalid,
       [](auto& context, bool is_odd) { context.all_reduce("sum", ones({is_odd ? 300'000 : 200'000})); }},
      {"another dtype", kInvalid,
       [](auto& context, bool is_odd) { context.all_reduce("sum", ones({2}, is_odd ? torch::kDouble : torch::kFloat)); }},
      {"another length of a list", kInvalid,
       [](auto& context, bool is_odd) { context.all_reduce("sum", std::vector<torch::Tensor>(is_odd ? 3 : 2, ones({2}))); }},
      {"another key", kInvalid,
       [](auto& context, bool is_odd) {
         context.all_reduce("sum", Named{{is_odd ? "x" : "y", ones({2})}});
       }},
      {"another operation", kInvalid,
       [](auto& context, bool is_odd) { context.all_reduce(is_odd ? "mean" : "sum", ones({2})); }},
      {"another rank in a gather", kInvalid,
       [](auto& context, bool is_odd) {
         context.all_gather(is_odd ? ones({2, 2}) : ones({2}), 0);
       }},
      {"another width in a gather", kInvalid,
       [](auto& context, bool is_odd) {
         context.all_gather(ones({2, is_odd ? 3 : 2}), 0);
       }},
      {"another dtype in a gather", kInvalid,
       [](auto& context, bool is_odd) { context.all_gather(ones({2}, is_odd ? torch::kLong : torch::kFloat), 0); }},
      {"another call", ErrorCode::kFailedPrecondition,
       [](auto& context, bool is_odd) {
         if (is_odd) context.all_gather(ones({2}), 0);
         else context.all_reduce("sum", ones({2}));
       }},
      {"an exception of its own", ErrorCode::kDataLoss, [](auto& context, bool is_odd) {
         if (is_odd) throw Error(ErrorCode::kDataLoss, "a bad batch");
         context.all_reduce("sum", ones({2}));
       }}};
  return mistakes;
}

// All replicas alike.
const std::vector<Mistake>& wrong_calls() {
  static const std::vector<Mistake> mistakes = {
      {"a gather of numbers", kInvalid, [](auto& context, bool) { context.all_gather(ones({}), 0); }},
      {"a gather along no axis", kInvalid, [](auto& context, bool) { context.all_gather(ones({2}), 1); }},
      {"a gather of rows", ErrorCode::kUnimplemented,
       [](auto& context, bool) {
         context.all_gather(IndexedSlices{ones({1, 2}), torch::zeros({1}, torch::kLong), {4, 2}}, 0);
       }},
      {"an unknown operation", kInvalid, [](auto& context, bool) { context.all_reduce("max", ones({2})); }},
      {"a sparse tensor", kInvalid, [](auto& context, bool) { context.all_reduce("sum", torch::eye(2).to_sparse()); }},
      {"a scope in a replica", ErrorCode::kFailedPrecondition,
       [](auto& context, bool) { const auto scope = context.strategy().scope(); }},
      {"a reduction in a replica", ErrorCode::kFailedPrecondition,
       [](auto& context, bool) { context.strategy().reduce("sum", ones({2})); }},
      {"a batch in a replica", kInvalid,
       [](auto& context, bool) {
         static const auto dataset = data::Dataset::range(8).batch(4);
         auto iterator = DistributedDataset::from_dataset(context.replicas(), dataset).make_iterator();
         iterator.next();
       }},
      {"an exception of everybody", ErrorCode::kDataLoss,
       [](auto&, bool) { throw Error(ErrorCode::kDataLoss, "a bad batch"); }}};
  return mistakes;
}

// Writes of variables that their aggregation does not allow.
struct BadWrite {
  std::string what;
  ErrorCode code;
  Aggregation aggregation;
  std::function<void(Variable&)> body;
};

const std::vector<BadWrite>& bad_writes() {
  static const IndexedSlices rows{torch::ones({1}), torch::zeros({1}, torch::kLong), {3}};
  static const std::vector<BadWrite> writes = {
      {"a number that has no sum", kInvalid, Aggregation::kSum, [](Variable& variable) { variable.assign_add(1.0); }},
      {"a value of another shape", kInvalid, Aggregation::kMean, [](Variable& variable) { variable.assign(ones({4})); }},
      {"a minimum of a sum", ErrorCode::kUnimplemented, Aggregation::kSum,
       [](Variable& variable) { variable.scatter_min(rows); }},
      {"a maximum of a mean", ErrorCode::kUnimplemented, Aggregation::kMean,
       [](Variable& variable) { variable.scatter_max(rows); }},
      {"rows of a mean", ErrorCode::kUnimplemented, Aggregation::kMean,
       [](Variable& variable) { variable.scatter_update(rows); }}};
  return writes;
}

// After a mistake a worker can go on, or has failed for good and says why: it does not wait.
std::string afterwards(MultiWorkerMirroredStrategy& strategy, ErrorCode code) {
  const int n = strategy.num_replicas_in_sync();
  try {
    const auto sums = strategy.run([](ReplicaContext& context) { return context.all_reduce("sum", torch::ones({})); });
    for (const auto& sum : sums)
      if (sum.item<float>() != static_cast<float>(n)) return str("a sum of ", sum.item<float>());
    return "typed";
  } catch (const Error& error) {
    return error.code() == code ? "typed" : error.what();
  }
}

// Makes each mistake in a job of its own, with ports of its own, so that none has to live with what another left.
class Jobs {
 public:
  explicit Jobs(const Parameters& parameters)
      : options_(options_of(parameters)),
        me_(TFConfigClusterResolver().task_id().value()),
        ports_(parameters.text("ports", "")) {
    workers_ = static_cast<int>(TFConfigClusterResolver().cluster_spec().num_tasks("worker"));
  }

  void report_one(const std::string& what, ErrorCode code, const std::function<void(MultiWorkerMirroredStrategy&)>& make) {
    MultiWorkerMirroredStrategy strategy(next_cluster(), options_);
    Report report(strategy);
    report.begin("errors");
    report.expect(what, code_of_call([&] { make(strategy); }), code);
    report.expect("after " + what, afterwards(strategy, code), "typed");
  }

 private:
  std::shared_ptr<const ClusterResolver> next_cluster() {
    std::vector<std::string> addresses;
    for (std::string port; static_cast<int>(addresses.size()) < workers_;) {
      if (!std::getline(ports_, port, ',')) throw Error(ErrorCode::kInvalidArgument, "there are more jobs than ports");
      addresses.push_back("127.0.0.1:" + port);
    }
    ClusterSpec spec;
    spec.set_job("worker", addresses);
    return std::make_shared<SimpleClusterResolver>(spec, SimpleClusterOptions{.task_type = "worker", .task_id = me_});
  }

  const MultiWorkerOptions options_;
  const std::int64_t me_;
  int workers_ = 0;
  std::istringstream ports_;  // "20001,20002,..."
};

}  // namespace

void errors(const Parameters& parameters) {
  Jobs jobs(parameters);
  for (const int odd_one : {0, parameters.number("all", 4) - 1})
    for (const auto& mistake : odd_values())
      jobs.report_one(str(mistake.what, " in replica ", odd_one), mistake.code, [&](MultiWorkerMirroredStrategy& strategy) {
        strategy.run([&](ReplicaContext& context) { mistake.body(context, context.replica_id_in_sync_group() == odd_one); });
      });
  for (const auto& mistake : wrong_calls())
    jobs.report_one(mistake.what, mistake.code, [&](MultiWorkerMirroredStrategy& strategy) {
      strategy.run([&](ReplicaContext& context) { mistake.body(context, true); });
    });
  for (const auto& write : bad_writes())
    jobs.report_one(write.what, write.code, [&](MultiWorkerMirroredStrategy& strategy) {
      const auto scope = strategy.scope();
      Variable variable(torch::zeros({3}), {.aggregation = write.aggregation});
      strategy.run([&] { write.body(variable); });
    });
  std::cout << "done" << std::endl;
}

}  // namespace lockstep::testing

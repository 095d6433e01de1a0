#include <lockstep/lockstep.h>
#include <torch/torch.h>

#include <iomanip>
#include <sstream>

#include "lockstep/collective/worker_group.h"
#include "lockstep/observe/metrics_endpoint.h"
#include "lockstep/train/callbacks/prometheus.h"
#include "tests/multi_worker/collectives.h"
#include "tests/support/scratch_folder.h"

// Model::fit and what belongs to it, over workers: losses, metrics and weights are those of one process.

namespace lockstep::testing {
namespace {

constexpr std::int64_t kRows = 31;  // batches of 14, 14 and 3: uneven for four replicas, and one gets nothing

struct Net : torch::nn::Module {
  Net()
      : first(register_module("first", torch::nn::Linear(6, 40))), second(register_module("second", torch::nn::Linear(40, 3))) {
    to(torch::kDouble);
  }
  torch::Tensor forward(const torch::Tensor& x) { return second(torch::tanh(first(x))); }
  torch::nn::Linear first, second;
};

struct Dropping : Net {
  torch::Tensor forward(const torch::Tensor& x) { return second(torch::dropout(torch::tanh(first(x)), 0.2, is_training())); }
};

// A channel over six values a row, so that LibTorch takes a replica's single row.
struct Normed : torch::nn::Module {
  Normed() : norm(register_module("norm", torch::nn::BatchNorm1d(1))), head(register_module("head", torch::nn::Linear(6, 3))) {
    to(torch::kDouble);
  }
  torch::Tensor forward(const torch::Tensor& x) { return head(torch::tanh(norm(x.unsqueeze(1)).squeeze(1))); }
  torch::nn::BatchNorm1d norm;
  torch::nn::Linear head;
};

data::Dataset examples() {
  const auto x = (torch::arange(kRows * 6, torch::kDouble).reshape({kRows, 6}) * 0.37).sin();
  return data::Dataset::from_tensor_slices(
             {x, torch::arange(kRows, torch::kLong) % 3, torch::linspace(0.5, 2, kRows, torch::kDouble)})
      .shuffle(kRows, 3)
      .batch(14)
      .with_options({.auto_shard_policy = AutoShardPolicy::kData});
}

CompileOptions options() {
  return {.optimizer = SGD({.learning_rate = 0.1, .momentum = 0.9, .global_clipnorm = 0.5}),
          .loss = sparse_categorical_crossentropy({.from_logits = true}),
          .metrics = {"accuracy"},
          .weighted_metrics = {"sparse_categorical_crossentropy"}};
}

std::string digits(const Logs& logs) {
  std::ostringstream out;
  out << std::setprecision(17);
  for (const auto& [name, value] : logs) out << name << " " << value << " ";
  return out.str();
}

std::vector<torch::Tensor> tensors_of(const Model& model) {
  std::vector<torch::Tensor> tensors;
  for (const auto& [name, tensor] : model.weights().tensors) tensors.push_back(tensor);
  return tensors;
}

// Losses and metrics over replicas are sums in another order than one process's: near, not equal.
bool are_near(const Logs& a, const Logs& b) {
  return a.size() == b.size() && std::ranges::equal(a, b, [](const auto& x, const auto& y) {
           return x.first == y.first && std::abs(x.second - y.second) < 1e-9;
         });
}

void report_history(MultiWorkerMirroredStrategy& strategy, Report& report) {
  const FitOptions fit{.epochs = 3, .validation_data = examples(), .class_weight = {{2, 2.5}}, .verbose = Verbose::kSilent};
  torch::manual_seed(5);
  Model alone(mirrored<Net>());
  alone.compile(options());
  const auto expected = alone.fit(examples(), fit);

  const auto scope = strategy.scope();
  torch::manual_seed(5);
  Model model(mirrored<Net>());
  model.compile(options());
  const auto found = model.fit(examples(), fit);
  for (std::size_t e = 0; e < found.logs.size(); ++e) {
    report.expect(str("epoch ", e, ": as one process"),
                  are_near(found.logs[e], expected.logs[e]) ? "yes" : digits(found.logs[e]), "yes");
    report.all(str("epoch ", e), digits(found.logs[e]));
  }
  report.all("weights", str(digest(tensors_of(model))));
  report.all("evaluated", digits(model.evaluate(examples())));
  const auto x = torch::arange(66, torch::kDouble).reshape({11, 6}).cos();
  report.expect("predicted in order", model.predict(x, 5), model.module()->here()->as<Net>()->forward(x).detach());
}

// Batch norms over the rows of all workers, uneven as they are: parameters and running statistics are those of one process.
void report_batch_norms(MultiWorkerMirroredStrategy& strategy, Report& report) {
  const FitOptions fit{.epochs = 2, .verbose = Verbose::kSilent};
  torch::manual_seed(5);
  Model alone(mirrored<Normed>());
  alone.compile(options());
  const auto expected = alone.fit(examples(), fit);

  const auto scope = strategy.scope();
  torch::manual_seed(5);
  const auto module = mirrored<Normed>();
  report.check("batch norms converted", std::to_string(convert_sync_batch_norm(module)), "1");
  Model model(module);
  model.compile(options());
  const auto found = model.fit(examples(), fit);
  for (std::size_t e = 0; e < found.logs.size(); ++e)
    report.expect(str("batch norms, epoch ", e, ": as one process"),
                  are_near(found.logs[e], expected.logs[e]) ? "yes" : digits(found.logs[e]), "yes");
  const auto mine = tensors_of(model), theirs = tensors_of(alone);
  for (std::size_t i = 0; i < theirs.size(); ++i) report.expect(str("batch norms, tensor ", i), mine[i], theirs[i]);
  report.all("batch norms, weights", str(digest(mine)));
}

// One worker alone asks: all end after the same step, or with the same error.
void report_stops(MultiWorkerMirroredStrategy& strategy, Report& report) {
  const auto scope = strategy.scope();
  Model model(mirrored<Net>());
  model.compile(options());
  const auto is_alone = strategy.replicas().workers() == nullptr;
  const auto stop = LambdaCallback({.on_train_batch_end = [](Training& training) {
    if (training.is_chief() && training.iterations() == 4) training.stop();
  }});
  model.fit(examples(), {.epochs = 9, .callbacks = {stop}, .verbose = Verbose::kSilent});
  report.check("stopped after", std::to_string(model.iterations()), is_alone ? "4" : "5");
  const auto fail = LambdaCallback({.on_epoch_end = [](Training& training, Logs&) {
    if (training.is_chief()) training.fail(Error(ErrorCode::kOutOfRange, "enough"));
  }});
  report.expect("failed",
                code_of_call([&] { model.fit(examples(), {.epochs = 9, .callbacks = {fail}, .verbose = Verbose::kSilent}); }),
                ErrorCode::kOutOfRange);
}

// The last worker's callback throws in one place after the other: that worker gets what was thrown, the others its text, and
// all are there for the next fit().
void report_throws(MultiWorkerMirroredStrategy& strategy, Report& report) {
  const auto scope = strategy.scope();
  Model model(mirrored<Net>());
  model.compile(options());
  auto* const workers = strategy.replicas().workers();
  const bool is_last = workers == nullptr || workers->layout().rank == workers->layout().size() - 1;
  const auto boom = [is_last](Training&) {
    if (is_last) throw std::domain_error("boom");
  };
  const std::vector<std::pair<std::string, LambdaCallback>> places{
      {"on_train_begin", LambdaCallback({.on_train_begin = boom})},
      {"on_epoch_begin", LambdaCallback({.on_epoch_begin = boom})},
      {"on_train_batch_end", LambdaCallback({.on_train_batch_end = boom})},
      {"on_epoch_end", LambdaCallback({.on_epoch_end = [boom](Training& training, Logs&) { boom(training); }})},
      {"on_train_end", LambdaCallback({.on_train_end = boom})}};
  for (const auto& [place, callback] : places) {
    std::string got = "nothing";
    try {
      model.fit(examples(), {.epochs = 2, .callbacks = {callback}, .verbose = Verbose::kSilent});
    } catch (const std::domain_error& error) {
      got = is_last ? "its own" : "another's";
    } catch (const Error& error) {
      got = error.message().find("boom") != std::string::npos && !is_last ? "its own" : error.what();
    }
    report.expect(str("thrown in ", place), got, "its own");
  }
}

void report_failures_at_the_edges(MultiWorkerMirroredStrategy& strategy, Report& report) {
  const auto scope = strategy.scope();
  Model model(mirrored<Net>());
  model.compile(options());
  const auto* workers = strategy.replicas().workers();
  const bool is_last = workers == nullptr || workers->layout().rank == workers->layout().size() - 1;
  const auto fail_at_last_step = LambdaCallback({.on_train_batch_end = [&](Training& training) {
    if (is_last && training.step() == 3) training.fail(Error(ErrorCode::kOutOfRange, "enough"));
  }});
  report.expect("failed in the last step of an epoch", code_of_call([&] {
                  model.fit(examples(), {.epochs = 9, .callbacks = {fail_at_last_step}, .verbose = Verbose::kSilent});
                }),
                ErrorCode::kOutOfRange);
  const auto stop_at_once = LambdaCallback({.on_train_begin = [&](Training& training) {
    if (is_last) training.stop();
  }});
  const auto before = model.iterations();
  model.fit(examples(), {.epochs = 9, .callbacks = {stop_at_once}, .verbose = Verbose::kSilent});
  report.check("steps of a training that is stopped at once", std::to_string(model.iterations() - before), "0");
  const MetricsEndpoint taken("0", std::make_shared<MetricsRegistry>());  // the chief's counts: nobody else listens
  const Prometheus prometheus({.port = taken.port()});
  report.expect("its port is taken",
                code_of_call([&] { model.fit(examples(), {.callbacks = {prometheus}, .verbose = Verbose::kSilent}); }),
                ErrorCode::kFailedPrecondition);
}

// The chief's new folder, on all workers.
std::string common_folder(MultiWorkerMirroredStrategy& strategy, const ScratchFolder& mine) {
  auto* workers = strategy.replicas().workers();
  return workers == nullptr ? mine.path() : workers->exchange("a folder", mine.path())[0];
}

// What a program does that is thrown out at these updates, in turn, and started again.
void train_through(MultiWorkerMirroredStrategy& strategy, const std::string& folder, std::vector<std::int64_t> crashes,
                   const std::function<void(Model&)>& use) {
  for (;; crashes.erase(crashes.begin())) {
    torch::manual_seed(5);
    strategy.replicas().manual_seed(5);
    Model model(mirrored<Dropping>());
    model.compile(options());
    const auto crash = LambdaCallback({.on_train_batch_end = [&](Training& training) {
      if (!crashes.empty() && training.iterations() == crashes.front()) throw std::runtime_error("crash");
    }});
    try {
      model.fit(examples(), {.epochs = 4,
                             .callbacks = {BackupAndRestore(folder + "/backup", {.save_freq = 2}), crash},
                             .verbose = Verbose::kSilent});
      return use(model);
    } catch (const std::runtime_error& error) {
      if (std::string(error.what()) != "crash") throw;
    }
  }
}

void report_resumed(MultiWorkerMirroredStrategy& strategy, Report& report) {
  const auto scope = strategy.scope();
  const ScratchFolder mine;
  const auto folder = common_folder(strategy, mine);
  std::string whole, resumed;
  train_through(strategy, folder, {}, [&](Model& model) { whole = str(digest(tensors_of(model))); });
  train_through(strategy, folder, {1, 5, 6, 9}, [&](Model& model) { resumed = str(digest(tensors_of(model))); });
  report.all("never interrupted", whole);
  report.expect("resumed", resumed, whole);
  // Nobody removes the folder before all are done with it.
  if (strategy.replicas().workers() != nullptr) strategy.replicas().workers()->barrier("the end");
}

}  // namespace

void report_fitting(MultiWorkerMirroredStrategy& strategy, Report& report) {
  report_history(strategy, report);
  report_batch_norms(strategy, report);
  report_stops(strategy, report);
  report_throws(strategy, report);
  report_failures_at_the_edges(strategy, report);
  report_resumed(strategy, report);
}

}  // namespace lockstep::testing

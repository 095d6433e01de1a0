#include <lockstep/lockstep.h>
#include <torch/torch.h>

#include <optional>

#include "tests/multi_worker/collectives.h"

// Models whose gradients come from several workers: the bits are those of any other number of workers, and the numbers are
// those of one process with the whole batch.

namespace lockstep::testing {
namespace {

constexpr std::int64_t kRows = 14;  // a global batch: uneven for four replicas
constexpr int kSteps = 5;

torch::Tensor batch(int step, std::int64_t width = 6) {
  return (torch::arange(kRows * width, torch::kDouble).reshape({kRows, width}) * 0.37 + step).sin();
}

torch::Tensor part_of(const torch::Tensor& rows, const ReplicaContext& context) {
  return rows.tensor_split(context.num_replicas_in_sync())[static_cast<std::size_t>(context.replica_id_in_sync_group())];
}

// Layers of different sizes: gradients that share a bucket, and one that is large.
struct NetImpl : torch::nn::Module {
  explicit NetImpl(bool is_sparse = false)
      : small(register_module("small", torch::nn::Linear(6, 40))),
        large(register_module("large", torch::nn::Linear(40, 300))),
        head(register_module("head", torch::nn::Linear(300, 2))),
        table(register_module("table", torch::nn::Embedding(torch::nn::EmbeddingOptions(20, 6).sparse(is_sparse)))) {
    to(torch::kDouble);
  }
  torch::Tensor forward(const torch::Tensor& x) {
    const auto ids = (x.slice(1, 0, 3).abs() * 19).to(torch::kLong);  // repeated, some of them in several replicas
    return head(torch::tanh(large(torch::tanh(small(x + table(ids).sum(1))))));
  }
  // Adds up over rows.
  torch::Tensor loss(const torch::Tensor& x) { return forward(x).square().sum() / kRows; }
  torch::nn::Linear small, large, head;
  torch::nn::Embedding table;
};
TORCH_MODULE(Net);

using Tensors = std::vector<torch::Tensor>;
using Plain = std::function<void(NetImpl&, torch::optim::Optimizer&, int step)>;

void clear_gradients(NetImpl& net) {
  for (auto& parameter : net.parameters()) parameter.mutable_grad().reset();
}

void plain_step(NetImpl& net, torch::optim::Optimizer& optimizer, int step) {
  clear_gradients(net);
  net.loss(batch(step)).backward();
  optimizer.step();
}

// One process, no strategy, from the same initial weights.
template <typename X, typename XOptions>
Tensors train_alone(const Tensors& initial, const XOptions& options, bool is_sparse, const Plain& step_fn) {
  NetImpl net(is_sparse);
  const torch::NoGradGuard no_grad;
  for (std::size_t i = 0; i < initial.size(); ++i) net.parameters()[i].copy_(initial[i]);
  X optimizer(net.parameters(), options);
  for (int step = 0; step < kSteps; ++step) {
    const torch::AutoGradMode with_grad(true);
    step_fn(net, optimizer, step);
  }
  return net.parameters();
}

Tensors copies(const Tensors& tensors) {
  Tensors all;
  for (const auto& tensor : tensors) all.push_back(tensor.detach().clone());
  return all;
}

void expect_weights(Report& report, const std::string& what, const Tensors& found, const Tensors& wanted) {
  double most = 0;
  for (std::size_t i = 0; i < found.size(); ++i) most = std::max(most, (found[i] - wanted[i]).abs().max().item<double>());
  report.expect(what + ": as one process", most < 1e-9 ? "yes" : str("no, by ", most), "yes");
  report.all(what + ": bits", str(digest(found)));
}

struct Kind {
  bool is_sparse = false;
  OptimizerOptions options = {};
};

// Trains with `step_fn` in every replica, and `alone` with one process.
template <typename X, typename XOptions>
void report_kind(MultiWorkerMirroredStrategy& strategy, Report& report, const std::string& what, const XOptions& x_options,
                 const Kind& kind,
                 const std::function<void(MirroredModule<NetImpl>&, Optimizer&, ReplicaContext&, int)>& step_fn,
                 const Plain& alone = plain_step) {
  const auto scope = strategy.scope();
  auto model = mirrored<Net>(kind.is_sparse);
  const auto initial = copies(model->parameters());
  report.all(what + ": initial weights", str(digest(initial)));
  auto optimizer = lockstep::optimizer<X>(model, x_options, kind.options);
  for (int step = 0; step < kSteps; ++step)
    strategy.run([&](ReplicaContext& context) { step_fn(model, optimizer, context, step); });
  for (std::size_t r = 0; r < model.size(); ++r)
    report.expect(what + ": replicas",
                  digest(model.at(r).parameters()) == digest(model.at(0).parameters()) ? "equal" : "differ", "equal");
  expect_weights(report, what, copies(model->parameters()), copies(train_alone<X>(initial, x_options, kind.is_sparse, alone)));
}

void simple_step(MirroredModule<NetImpl>& model, Optimizer& optimizer, ReplicaContext& context, int step) {
  model->loss(part_of(batch(step), context)).backward();
  optimizer.step();
}

using Sgd = torch::optim::SGD;
using Adam = torch::optim::Adam;
const auto momentum = torch::optim::SGDOptions(0.05).momentum(0.9);

void report_plain(MultiWorkerMirroredStrategy& strategy, Report& report) {
  report_kind<Sgd>(strategy, report, "sgd", momentum, {}, simple_step);
  report_kind<Adam>(strategy, report, "adam", 0.01, {}, simple_step);
  report_kind<Sgd>(strategy, report, "without overlap", momentum, {false, {.gradients = {.overlap = false}}}, simple_step);
  report_kind<Sgd>(strategy, report, "small buckets", momentum, {false, {.gradients = {.bucket_bytes = 2000}}}, simple_step);
  report_kind<Sgd>(strategy, report, "an embedding with sparse gradients", 0.05, {.is_sparse = true}, simple_step);
  report_kind<torch::optim::Adagrad>(strategy, report, "adagrad with sparse gradients", 0.05, {.is_sparse = true}, simple_step);
}

// Two batches of a step: the first only accumulates.
void report_accumulation(MultiWorkerMirroredStrategy& strategy, Report& report) {
  for (const bool is_sparse : {false, true}) {
    report_kind<Sgd>(
        strategy, report, str("accumulation, sparse ", is_sparse), 0.05, {.is_sparse = is_sparse},
        [](auto& model, auto& optimizer, auto& context, int step) {
          {
            const auto no_sync = optimizer.no_sync();
            model->loss(part_of(batch(step), context)).backward();
          }
          model->loss(part_of(batch(step + 100), context)).backward();
          optimizer.step();
        },
        [](NetImpl& net, torch::optim::Optimizer& optimizer, int step) {
          clear_gradients(net);
          net.loss(batch(step)).backward();
          net.loss(batch(step + 100)).backward();
          optimizer.step();
        });
  }
}

void report_clipping(MultiWorkerMirroredStrategy& strategy, Report& report) {
  report_kind<Sgd>(strategy, report, "clipping", 0.5, {.options = {.clip_global_norm = 0.1}}, simple_step,
                   [](NetImpl& net, torch::optim::Optimizer& optimizer, int step) {
                     clear_gradients(net);
                     net.loss(batch(step)).backward();
                     double squares = 0;
                     for (const auto& parameter : net.parameters()) squares += parameter.grad().square().sum().item<double>();
                     for (auto& parameter : net.parameters())
                       parameter.mutable_grad().mul_(std::min(1.0, 0.1 / std::sqrt(squares)));
                     optimizer.step();
                   });
  const auto scope = strategy.scope();
  auto model = mirrored<Net>();
  auto optimizer = lockstep::optimizer<Sgd>(model, 0.5, {.clip_global_norm = 1e-3});
  const auto before = copies(model->parameters());
  strategy.run([&](ReplicaContext& context) { simple_step(model, optimizer, context, 0); });
  double moved = 0;
  for (std::size_t i = 0; i < before.size(); ++i) moved += (model->parameters()[i] - before[i]).square().sum().item<double>();
  report.expect("clipping: how far one step went", str(std::sqrt(moved) < 0.5e-3 * 1.0001), "1");
  report.expect("clipping: the norm before it", str(optimizer.global_norm() > 1e-3), "1");
}

// Replicas count equally: a mean of each one's mean.
void report_mean(MultiWorkerMirroredStrategy& strategy, Report& report) {
  const int n = strategy.num_replicas_in_sync();
  report_kind<Sgd>(
      strategy, report, "a mean of gradients", 0.05, {.options = {.gradients = {.reduce = ReduceOp::kMean}}},
      [](auto& model, auto& optimizer, auto& context, int step) {
        const auto rows = part_of(batch(step), context);
        (model->loss(rows) / rows.size(0)).backward();
        optimizer.step();
      },
      [n](NetImpl& net, torch::optim::Optimizer& optimizer, int step) {
        clear_gradients(net);
        for (const auto& rows : batch(step).tensor_split(n)) (net.loss(rows) / rows.size(0) / n).backward();
        optimizer.step();
      });
}

// Statistics of a batch norm are each replica's own, and their mean across replicas.
struct NormedImpl : torch::nn::Module {
  NormedImpl()
      : norm(register_module("norm", torch::nn::BatchNorm1d(6))), head(register_module("head", torch::nn::Linear(6, 1))) {
    to(torch::kDouble);
  }
  torch::Tensor loss(const torch::Tensor& x) { return head(norm(x)).square().sum() / kRows; }
  torch::nn::BatchNorm1d norm;
  torch::nn::Linear head;
};

void report_norm(MultiWorkerMirroredStrategy& strategy, Report& report) {
  const auto scope = strategy.scope();
  auto model = mirrored<NormedImpl>();
  auto optimizer = lockstep::optimizer<Sgd>(model, 0.1);
  for (int step = 0; step < kSteps; ++step) {
    const auto losses = strategy.run([&](ReplicaContext& context) {
      const auto loss = model->loss(part_of(batch(step), context));
      loss.backward();
      optimizer.step();
      return loss.detach();
    });
    report.all(str("batch norm: loss ", step), strategy.reduce("sum", losses));
  }
  report.each("batch norm: running mean", strategy.run([&] { return model->norm->running_mean.clone(); }));
  report.all("batch norm: weights", str(digest(model->parameters())));
}

// A generator and a critic, each with an optimizer, stepping in turn.
void report_two_models(MultiWorkerMirroredStrategy& strategy, Report& report) {
  const auto scope = strategy.scope();
  auto first = mirrored<torch::nn::LinearImpl>(6, 6);
  auto second = mirrored<Net>();
  auto first_optimizer = lockstep::optimizer<Adam>(first, 0.01);
  auto second_optimizer = lockstep::optimizer<Sgd>(second, 0.05);
  for (int step = 0; step < kSteps; ++step)
    strategy.run([&](ReplicaContext& context) {
      const auto x = part_of(batch(step), context);
      const auto made = first->forward(x.to(torch::kFloat)).to(torch::kDouble);
      second->loss(made.detach()).backward();
      second_optimizer.step();
      {
        const auto no_sync = second_optimizer.no_sync();
        (-second->loss(made)).backward();
      }
      first_optimizer.step();
      second_optimizer.zero_grad();
    });
  report.all("two models: the first", str(digest(first->parameters())));
  report.all("two models: the second", str(digest(second->parameters())));
  for (std::size_t r = 0; r < first.size(); ++r)
    report.expect("two models: replicas", str(digest(first.at(r).parameters()) == digest(first->parameters())), "1");
}

}  // namespace

void report_training(MultiWorkerMirroredStrategy& strategy, Report& report) {
  report_plain(strategy, report);
  report_accumulation(strategy, report);
  report_clipping(strategy, report);
  report_mean(strategy, report);
  report_norm(strategy, report);
  report_two_models(strategy, report);
}

}  // namespace lockstep::testing

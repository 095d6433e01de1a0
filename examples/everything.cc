// A custom loop with everything: a schedule and clipping, metrics that are exact over uneven batches, checkpoints from which it
// goes on when it is started again, TensorBoard's event files, a trace, and errors that say what to do.
//
//   everything [FOLDER]                                           TensorBoard and `lockstep report` read FOLDER/logs
//   lockstep run -n 2 --max-restarts 3 ./everything FOLDER        two workers, the same numbers; kill one: it goes on
//   lockstep run --hosts a,b --ssh ./everything /shared/FOLDER    two machines, which see one folder
#include <lockstep/lockstep.h>

#include <filesystem>
#include <iostream>
#include <optional>

namespace ls = lockstep;

constexpr int64_t kEpochs = 4;
constexpr int64_t kStepsPerEpoch = 24;  // 6000 rows in batches of 256: the last one has 112

struct Net : torch::nn::Module {
  Net() : hidden(register_module("hidden", torch::nn::Linear(784, 64))), out(register_module("out", torch::nn::Linear(64, 10))) {}
  torch::Tensor forward(const torch::Tensor& x) { return out(torch::relu(hidden(x.flatten(1)))); }
  torch::nn::Linear hidden, out;
};

// [trainer]
struct Trainer {
  torch::Tensor train_step(const torch::Tensor& x, const torch::Tensor& y) {  // in every replica, with its part of the batch
    const auto rows = ls::get_replica_context()->all_reduce("sum", x.size(0));  // the last batch of an epoch is smaller
    const auto logits = model->forward(x);
    const auto mine = ls::compute_average_loss(loss.per_example(y, logits), rows);  // the sum over the replicas is the mean
    mine.backward();
    optimizer.step();  // sums the gradients, clips them, and steps with the schedule's rate
    for (auto* metric : {&mean_loss, &accuracy}) metric->update_state(y, logits.detach());
    return mine.detach();
  }
  ls::Logs take_logs() {  // on all workers: a result is that of the sum over all replicas
    ls::Logs logs;
    for (auto* metric : {&mean_loss, &accuracy, &test_accuracy}) {
      logs.set(metric->name(), metric->result().item<double>());
      metric->reset_state();
    }
    return logs;
  }

  ls::Loss loss = ls::sparse_categorical_crossentropy({.from_logits = true});
  ls::MirroredModule<Net> model = ls::mirrored<Net>();
  ls::schedules::CosineDecay decay{{.initial_learning_rate = 5e-3, .decay_steps = kEpochs * kStepsPerEpoch}};
  ls::Optimizer optimizer = ls::optimizer(model, ls::Adam({.learning_rate = ls::schedules::warm_up(decay, 10), .global_clipnorm = 1.0}));
  ls::Metric mean_loss = ls::Metric(loss).renamed("loss"), accuracy = "accuracy", test_accuracy = accuracy.renamed("test_accuracy");
};
// [trainer]

// A disk that is full must not end the training: the last good checkpoint stays, and the next save tries again.
void save(ls::CheckpointManager& manager, const ls::CheckpointInfo& info) try {
  manager.save(info);  // copies the tensors; a thread writes them
} catch (const ls::Error& error) {
  if (error.code() != ls::ErrorCode::kUnavailable || !manager.latest_checkpoint()) throw;
  std::cerr << "everything: goes on without a checkpoint of step " << info.step << ": " << error.what() << "\n";
}

// Trains to the end of epoch `last`, going on from what `folder` has.
torch::Tensor train(const std::string& folder, int64_t last) {
  // [setup]
  torch::manual_seed(1);
  ls::MultiWorkerMirroredStrategy strategy;  // alone: one process with all its devices
  const auto scope = strategy.scope();
  const auto images = ls::data::fashion_mnist("train").take(6000).shuffle(6000, 1).batch(256).repeat();
  const auto test = strategy.experimental_distribute_dataset(ls::data::fashion_mnist("test").take(1000).batch(300));
  auto iterator = strategy.experimental_distribute_dataset(images).make_iterator();
  Trainer trainer;
  int64_t step = 0;

  ls::Checkpoint checkpoint(strategy);
  checkpoint.track("model", trainer.model).track("optimizer", ls::optimizer_part(trainer.optimizer));
  checkpoint.track("data", iterator).track("step", &step).track_generators();
  ls::CheckpointManager manager(checkpoint, folder + "/checkpoints", {.max_to_keep = 2, .keep_best = "loss"});
  if (const auto restored = manager.restore_latest()) std::cout << "goes on from " << restored->path << "\n";
  std::optional<ls::EventWriter> events;
  if (strategy.is_chief()) events.emplace(folder + "/logs");
  // [setup]

  // [loop]
  while (step < last * kStepsPerEpoch) {
    if (step == 10) ls::trace::start();
    const auto losses = strategy.run([&](torch::Tensor x, torch::Tensor y) { return trainer.train_step(x, y); }, iterator.get_next());
    if (++step == 20) ls::write_trace(folder + "/trace.json", ls::trace::stop(), strategy);  // saved at 24: never between the two
    const double now = strategy.reduce("sum", losses).item<double>();
    if (!std::isfinite(now)) throw ls::Error(ls::ErrorCode::kFailedPrecondition, ls::str("the loss of step ", step, " is ", now));
    if (events) events->scalar("batch_loss", now, step);
    if (step % kStepsPerEpoch != 0) continue;
    const torch::NoGradGuard no_grad;
    for (auto batch : test)
      strategy.run([&](torch::Tensor x, torch::Tensor y) { trainer.test_accuracy.update_state(y, trainer.model->forward(x)); }, batch);
    const auto logs = trainer.take_logs();
    save(manager, {.step = step, .epoch = step / kStepsPerEpoch, .metrics = {logs.begin(), logs.end()}});
    if (!events) continue;
    std::cout << "epoch " << step / kStepsPerEpoch << " - " << ls::show(logs) << "\n";
    for (const auto& [tag, value] : logs) events->scalar(tag, value, step);
    ls::write_histogram(*events, "hidden/weight", trainer.model->hidden->weight, step);
  }
  manager.wait();  // the last one is on the disk, or this says why not
  // [loop]
  return trainer.model->hidden->weight.detach().clone();
}

int main(int argc, char** argv) try {
  const std::string folder = argc > 1 ? argv[1] : "everything";
  if (folder != "--test") return train(folder, kEpochs), 0;
  const std::string own = "/tmp/lockstep_everything_" + std::to_string(getpid());
  train(own + "/stopped", 2);
  const bool is_same = torch::equal(train(own + "/stopped", kEpochs), train(own + "/whole", kEpochs));
  std::cout << (is_same ? "stopped and started again: the same weights, bit by bit\n" : "the weights differ\n");
  std::filesystem::remove_all(own);
  return is_same ? 0 : 1;
} catch (const std::exception& error) {
  std::cerr << "everything: " << error.what() << "\n";
  if (const auto* ours = dynamic_cast<const ls::Error*>(&error); ours != nullptr && ls::is_retryable(ours->code()))
    std::cerr << "start it again: it goes on from its last checkpoint\n";
  return 1;
}

// A loop that is stopped and started again, and ends with the weights of one that was not: ./checkpoints FOLDER, as often as you like.
#include <lockstep/checkpoint/checkpoint_manager.h>
#include <lockstep/checkpoint/weights.h>
#include <lockstep/lockstep.h>
#include <lockstep/train/preemption_checkpoint_handler.h>

#include <iostream>

namespace ls = lockstep;

struct Net : torch::nn::Module {
  Net()
      : hidden(register_module("hidden", torch::nn::Linear(784, 64))),
        dropout(register_module("dropout", torch::nn::Dropout(0.2))),
        output(register_module("output", torch::nn::Linear(64, 10))) {}
  torch::Tensor forward(const torch::Tensor& x) { return output(dropout(torch::relu(hidden(x.flatten(1))))); }
  torch::nn::Linear hidden;
  torch::nn::Dropout dropout;
  torch::nn::Linear output;
};

// Trains to step `last` in all, going on from what `folder` has; the final weights go to `weights`.
void train(const std::string& folder, int64_t last, const std::string& weights) {
  // [train]
  torch::manual_seed(1);
  ls::MirroredStrategy strategy({"CPU:0", "CPU:1"});
  auto scope = strategy.scope();
  auto model = ls::mirrored<Net>();
  auto optimizer = ls::optimizer<torch::optim::SGD>(model, torch::optim::SGDOptions(0.05).momentum(0.9));
  auto batches = strategy.experimental_distribute_dataset(ls::data::fashion_mnist("train").shuffle(60'000, 1).repeat().batch(64));
  auto iterator = batches.make_iterator();
  int64_t step = 0;

  ls::Checkpoint checkpoint(strategy);
  checkpoint.track("model", model).track("optimizer", ls::optimizer_part(optimizer)).track("data", iterator).track("step", &step);
  checkpoint.track_generators();
  ls::CheckpointManager manager(checkpoint, folder, {.max_to_keep = 3});
  if (auto restored = manager.restore_latest()) std::cout << "goes on from " << restored->path << "\n";

  while (step < last) {
    strategy.run([&](torch::Tensor x, torch::Tensor y) {
      torch::cross_entropy_loss(model->forward(x), y).div(strategy.num_replicas_in_sync()).backward();
      optimizer.step();
    }, iterator.get_next());
    if (++step % 20 == 0) manager.save(step);  // copies the tensors; a thread writes them
  }
  manager.wait();  // the last one is on the disk, or this says why not
  ls::save_weights(weights, model);
  // [train]
}

bool are_equal(const std::string& a, const std::string& b) {
  const auto left = ls::load_weights(a).tensors;
  const auto right = ls::load_weights(b).tensors;
  for (size_t i = 0; i < left.size(); ++i)
    if (!torch::equal(left[i].second, right[i].second)) return false;
  return left.size() == right.size();
}

// The same for a machine that may be taken away: saves when it is told so, and only then.
void train_until_told(const std::string& folder, const ls::TerminationConfig& config, const std::string& weights) {
  torch::manual_seed(1);
  ls::MirroredStrategy strategy({"CPU:0", "CPU:1"});
  auto scope = strategy.scope();
  auto model = ls::mirrored<Net>();
  auto optimizer = ls::optimizer<torch::optim::SGD>(model, torch::optim::SGDOptions(0.05).momentum(0.9));
  auto batches = strategy.experimental_distribute_dataset(ls::data::fashion_mnist("train").shuffle(60'000, 1).repeat().batch(64));
  auto iterator = batches.make_iterator();
  const auto train_step = [&](torch::Tensor x, torch::Tensor y) {
    torch::cross_entropy_loss(model->forward(x), y).div(strategy.num_replicas_in_sync()).backward();
    optimizer.step();
  };
  // [told]
  ls::Checkpoint checkpoint(strategy);
  checkpoint.track("model", model).track("optimizer", ls::optimizer_part(optimizer)).track("data", iterator).track_generators();
  ls::CheckpointManager manager(checkpoint, folder);
  ls::PreemptionCheckpointHandler handler(manager, config);  // restores the newest checkpoint
  while (handler.total_run_calls() < 100) handler.run([&] { strategy.run(train_step, iterator.get_next()); });
  // [told]
  ls::save_weights(weights, model);
}

// Its watcher says at once that it has to go; in place of ending the program it throws kCancelled.
bool goes_on_after_notice(const std::string& folder) {
  try {
    train_until_told(folder + "/told", {.watcher = [] { return true; }, .exit = [] {}}, folder + "/told.safetensors");
  } catch (const ls::Error& error) {
    if (error.code() != ls::ErrorCode::kCancelled) throw;
  }
  train_until_told(folder + "/told", {}, folder + "/told.safetensors");
  return are_equal(folder + "/told.safetensors", folder + "/whole.safetensors");
}

// What other programs, or LibTorch's own, have written.
void convert(const std::string& folder, const std::string& weights) {
  // [weights]
  auto net = std::make_shared<Net>();
  ls::load_weights_into(*net, weights);  // also what Python's safetensors.torch.save_file(module.state_dict(), ...) wrote
  torch::save(net, folder + "/net.pt");
  ls::load_weights_into(*net, folder + "/net.pt");  // an archive of LibTorch's own

  for (const auto& [name, tensor] : ls::load_weights(weights).tensors) std::cout << name << " " << tensor.sizes() << "\n";
  // [weights]
}

// A part of the state that is the program's own.
// [part]
struct Scores : ls::Trackable {
  ls::CheckpointPart save() override { return {{{"scores", scores}}, {{"season", season}}}; }
  void restore(const ls::CheckpointPart& part) override {
    scores.copy_(*part.find("scores"));
    season = part.value("season");
  }
  std::vector<std::string> problems(const ls::CheckpointPart& part) const override {
    return ls::compare_tensors({{"scores", scores}}, part);  // before anything is changed
  }

  torch::Tensor scores = torch::zeros({3});
  std::string season = "winter";
};
// [part]

bool keeps_scores(const std::string& folder) {
  auto scores = std::make_shared<Scores>();
  ls::Checkpoint checkpoint;
  checkpoint.track("scores", scores);
  scores->scores.fill_(7);
  checkpoint.write(folder + "/scores");
  scores->scores.zero_();
  checkpoint.read(folder + "/scores");
  return scores->scores.sum().item<float>() == 21;
}

int main(int argc, char** argv) try {
  const bool is_test = argc > 1 && std::string(argv[1]) == "--test";
  const std::string folder = argc > 1 && !is_test ? argv[1] : "/tmp/lockstep_checkpoints_" + std::to_string(getpid());
  train(folder + "/stopped", 50, folder + "/stopped.safetensors");  // saves at 20 and 40
  train(folder + "/stopped", 100, folder + "/stopped.safetensors");
  train(folder + "/whole", 100, folder + "/whole.safetensors");
  convert(folder, folder + "/whole.safetensors");
  const bool is_good = are_equal(folder + "/stopped.safetensors", folder + "/whole.safetensors") && (!is_test || (keeps_scores(folder) && goes_on_after_notice(folder)));
  std::cout << (is_good ? "the same weights, bit by bit\n" : "the weights differ\n");
  if (is_test) ls::remove_tree(ls::real_files(), folder);
  return is_good ? 0 : 1;
} catch (const std::exception& error) {
  std::cerr << "checkpoints: " << error.what() << "\n";
  return 1;
}

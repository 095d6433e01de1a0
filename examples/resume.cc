// Training that goes on where it was when it is started again: lockstep run -n 2 --max-restarts 3 ./resume weights.pt
#include <lockstep/lockstep.h>

#include <filesystem>
#include <iostream>

namespace ls = lockstep;

int main(int argc, char** argv) try {
  const bool is_test = argc > 1 && std::string(argv[1]) == "--test";
  const std::string file = argc > 1 && !is_test ? argv[1] : "/tmp/lockstep_resume_" + std::to_string(getpid()) + ".pt";
  torch::manual_seed(1);
  ls::MultiWorkerMirroredStrategy strategy;
  const int64_t global_batch = 64 * strategy.num_replicas_in_sync();
  auto batches = strategy.experimental_distribute_dataset(ls::data::fashion_mnist("train").shuffle(60'000).take(6400).batch(global_batch));
  auto scope = strategy.scope();
  // [load]
  auto model = ls::mirrored<torch::nn::Sequential>(torch::nn::Flatten(), torch::nn::Linear(784, 10), torch::nn::LogSoftmax(1));
  auto epochs_done = torch::zeros({}, torch::kLong);
  if (std::filesystem::exists(file)) {  // on every worker: all must see the file
    torch::serialize::InputArchive saved;
    saved.load_from(file);
    model->load(saved);
    saved.read("epochs_done", epochs_done);
  }
  auto optimizer = ls::optimizer<torch::optim::SGD>(model, 0.1);
  // [load]

  for (auto epoch = epochs_done.item<int64_t>(); epoch < 3; ++epoch) {
    for (auto batch : batches)
      strategy.run([&](torch::Tensor x, torch::Tensor y) {
        const auto rows = ls::get_replica_context()->all_reduce("sum", x.size(0));  // the last batch is smaller
        ls::compute_average_loss(torch::nll_loss(model->forward(x), y, {}, torch::Reduction::None), rows).backward();
        optimizer.step();
      }, batch);
    // [save]
    if (strategy.is_chief()) {  // one writes, under another name first: a file that is there is whole
      torch::serialize::OutputArchive now;
      model->save(now);
      now.write("epochs_done", epochs_done.fill_(epoch + 1));
      now.save_to(file + ".part");
      std::filesystem::rename(file + ".part", file);
    }
    // [save]
    std::cout << "epoch " << epoch + 1 << " done\n";
  }
  if (is_test) std::filesystem::remove(file);
} catch (const std::exception& error) {  // without this an error ends the program by abort()
  std::cerr << "resume: " << error.what() << "\n";
  return 1;
}

// Saving and restoring 400 MB of float32 in 60 tensors, in turns with a plain write() and read() of as many bytes, and with
// LibTorch's torch::save and torch::load of the same tensors. Every write ends with fsync, every read finds its file in the
// system's memory.
//
//   checkpoint_bench --folder=FOLDER [--rounds=7] [--megabytes=400]
//
// Prints a line of JSON for each: GB/s, or the milliseconds for which an async save() stops its caller. Exit status 1 when
// something that was read differs from what was written.

#include <fcntl.h>
#include <torch/torch.h>
#include <unistd.h>

#include <chrono>
#include <cstdio>
#include <cstring>
#include <functional>
#include <map>
#include <stdexcept>

#include "lockstep/checkpoint/checkpoint_manager.h"

namespace bench {
namespace {

namespace ls = lockstep;
using Clock = std::chrono::steady_clock;

void check(bool holds, const char* what) {
  if (!holds) throw std::runtime_error(what);
}

double seconds_of(const std::function<void()>& work) {
  const auto begin = Clock::now();
  work();
  return std::chrono::duration<double>(Clock::now() - begin).count();
}

struct Tensors : ls::Trackable {
  explicit Tensors(std::int64_t bytes) {
    constexpr int kCount = 60;
    for (int i = 0; i < kCount; ++i) {
      // Some small, as biases are, most large.
      const auto elements = i % 5 == 4 ? 1000 : bytes / 4 / (kCount * 4 / 5);
      all.emplace_back("layer" + std::to_string(i) + ".weight", torch::rand({elements}));
    }
  }
  ls::CheckpointPart save() override { return {all, {}}; }
  void restore(const ls::CheckpointPart& part) override { copy_tensors(all, part); }
  std::vector<std::string> problems(const ls::CheckpointPart& part) const override { return compare_tensors(all, part); }
  bool is_weights() const override { return true; }

  std::vector<torch::Tensor> tensors() const {
    std::vector<torch::Tensor> list;
    for (const auto& [name, tensor] : all) list.push_back(tensor);
    return list;
  }
  std::int64_t bytes() const {
    std::int64_t total = 0;
    for (const auto& [name, tensor] : all) total += static_cast<std::int64_t>(tensor.nbytes());
    return total;
  }

  ls::NamedTensors all;
};

class Bench {
 public:
  Bench(std::string folder, std::int64_t bytes)
      : folder_(std::move(folder)),
        tensors_(std::make_shared<Tensors>(bytes)),
        buffer_(static_cast<std::size_t>(tensors_->bytes()), 'x') {
    ls::real_files().make_folder(folder_);
    sums_ = sums();
  }

  void round(int turn) {
    const std::vector<std::function<void()>> works{[&] { plain(); }, [&] { ours(); }, [&] { torchs(); }, [&] { async(); }};
    for (std::size_t i = 0; i < works.size(); ++i) {
      sync();  // what one has left for the disk to do is not the next one's time
      works[(i + static_cast<std::size_t>(turn)) % works.size()]();
    }
  }

  void print() const {
    for (const auto& [name, samples] : samples_) {
      std::printf("{\"name\": \"%s\", \"bytes\": %lld, \"samples\": [", name.c_str(),
                  static_cast<long long>(tensors_->bytes()));
      for (std::size_t i = 0; i < samples.size(); ++i) std::printf("%s%.4f", i == 0 ? "" : ", ", samples[i]);
      std::printf("]}\n");
    }
  }

 private:
  void note(const std::string& name, const std::function<void()>& work) {
    samples_[name].push_back(static_cast<double>(tensors_->bytes()) / 1e9 / seconds_of(work));
  }

  void plain() {
    const auto path = folder_ + "/plain";
    note("plain_write", [&] {
      const int file = open(path.c_str(), O_WRONLY | O_CREAT | O_TRUNC, 0666);
      for (std::size_t at = 0; at < buffer_.size();) {
        const auto done = write(file, buffer_.data() + at, std::min(kPiece, buffer_.size() - at));
        check(done > 0, "a plain write failed");
        at += static_cast<std::size_t>(done);
      }
      check(fsync(file) == 0, "fsync failed");
      close(file);
    });
    note("plain_read", [&] {
      const int file = open(path.c_str(), O_RDONLY);
      for (std::size_t at = 0; at < buffer_.size();) {
        const auto done = read(file, buffer_.data() + at, std::min(kPiece, buffer_.size() - at));
        check(done > 0, "a plain read failed");
        at += static_cast<std::size_t>(done);
      }
      close(file);
    });
    std::remove(path.c_str());
  }

  void ours() {
    ls::Checkpoint checkpoint;
    checkpoint.track("model", tensors_);
    ls::CheckpointManager manager(checkpoint, folder_ + "/ours", {.async = false});
    note("save", [&] { manager.save(1); });
    for (auto& [name, tensor] : tensors_->all) tensor.zero_();
    note("restore", [&] { check(manager.restore_latest().has_value(), "there is no checkpoint"); });
    check(sums() == sums_, "restored tensors differ");
    manager.remove_all();
  }

  void torchs() {
    const auto path = folder_ + "/torch.pt";
    note("torch_save", [&] {
      torch::save(tensors_->tensors(), path);
      const int file = open(path.c_str(), O_RDONLY);
      check(fsync(file) == 0, "fsync failed");
      close(file);
    });
    std::vector<torch::Tensor> loaded;
    note("torch_load", [&] { torch::load(loaded, path); });
    check(loaded.size() == tensors_->all.size() && torch::equal(loaded[0], tensors_->all[0].second), "loaded tensors differ");
    std::remove(path.c_str());
  }

  // One manager for all rounds, as in a training: its memory is used again.
  void async() {
    if (!manager_) {
      ls::Checkpoint checkpoint;
      checkpoint.track("model", tensors_);
      manager_ = std::make_unique<ls::CheckpointManager>(checkpoint, folder_ + "/async",
                                                         ls::CheckpointManagerOptions{.max_to_keep = 1});
      manager_->prepare();
      manager_->wait();
      samples_["async_first_stop_ms"].push_back(1e3 * seconds_of([&] { manager_->save(0); }));
      manager_->wait();
    }
    samples_["async_stop_ms"].push_back(1e3 * seconds_of([&] { manager_->save(1); }));
    manager_->wait();
  }

  std::vector<double> sums() const {
    std::vector<double> all;
    for (const auto& [name, tensor] : tensors_->all) all.push_back(tensor.sum().item<double>());
    return all;
  }

  static constexpr std::size_t kPiece = std::size_t{8} << 20;

  const std::string folder_;
  const std::shared_ptr<Tensors> tensors_;
  std::vector<char> buffer_;
  std::vector<double> sums_;
  std::map<std::string, std::vector<double>> samples_;
  std::unique_ptr<ls::CheckpointManager> manager_;
};

}  // namespace
}  // namespace bench

int main(int argc, char** argv) try {
  std::map<std::string, std::string> arguments{{"rounds", "7"}, {"megabytes", "400"}, {"folder", ""}};
  for (int i = 1; i < argc; ++i) {
    const std::string text = argv[i];
    const auto equals = text.find('=');
    if (text.rfind("--", 0) != 0 || equals == std::string::npos) throw std::invalid_argument("unknown argument '" + text + "'");
    arguments[text.substr(2, equals - 2)] = text.substr(equals + 1);
  }
  if (arguments["folder"].empty()) throw std::invalid_argument("--folder=... says where the files go");
  bench::Bench bench(arguments["folder"], std::stoll(arguments["megabytes"]) * 1'000'000);
  bench.round(0);  // all memory has been touched, all code has run
  const auto rounds = std::stoi(arguments["rounds"]);
  for (int round = 0; round < rounds; ++round) bench.round(round);
  bench.print();
  return 0;
} catch (const std::exception& error) {
  std::fprintf(stderr, "checkpoint_bench: %s\n", error.what());
  return 1;
}

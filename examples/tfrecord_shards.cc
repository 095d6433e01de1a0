// Trains on Fashion-MNIST from TFRecord files, each worker from its own: writes the files first if they are not there, says
// who reads what, and proves at the end that every image was seen once.
//
//   tfrecord_shards [--folder FOLDER] [--test]
//   lockstep run -n 2 tfrecord_shards
#include <lockstep/lockstep.h>
#include <unistd.h>

#include <cstring>
#include <filesystem>
#include <iostream>

namespace ls = lockstep;
namespace data = lockstep::data;

namespace {

constexpr int kFiles = 8;

std::string file_name(const std::string& folder, int file) {
  return folder + "/train-" + std::to_string(file) + "-of-" + std::to_string(kFiles) + ".tfrecord";
}

// Image k goes to file k modulo kFiles.
void write_files(const std::string& folder, std::int64_t images) {
  std::filesystem::create_directories(folder);
  const auto all = data::fashion_mnist("train").take(images);
  for (int file = 0; file < kFiles; ++file) {
    // Under another name first: a file that is there is whole.
    const auto name = file_name(folder, file);
    data::RecordWriter writer(name + ".part");
    for (const auto& element : all.shard(kFiles, file)) {
      const auto pixels = (element[0] * 255).round().to(torch::kByte).contiguous();
      writer.write(data::serialize_example(
          {{"image", std::vector<std::string>{std::string(static_cast<const char*>(pixels.data_ptr()), pixels.nbytes())}},
           {"label", std::vector<std::int64_t>{element[1].item<std::int64_t>()}}}));
    }
    writer.close();
    std::filesystem::rename(name + ".part", name);
  }
}

void remove_files(const std::string& folder) {
  for (int file = 0; file < kFiles; ++file) std::filesystem::remove(file_name(folder, file));
  std::filesystem::remove(folder);
}

// Parsed, decoded and normalised a batch at a time.
data::Dataset read_files(const std::string& folder, std::int64_t batch) {
  const data::ExampleParser parse({data::Feature::raw("image", torch::kByte, {1, 28, 28}), data::Feature::int64("label")});
  return data::Dataset::list_files({folder + "/train-*.tfrecord"}, /*shuffle_seed=*/1)
      .interleave([](const std::string& file) { return data::Dataset::tf_record({file}); }, /*cycle=*/4, /*block=*/16)
      .shuffle(2'000, 1)
      .batch(batch)
      .map(parse)
      .map([](torch::Tensor image, torch::Tensor label) { return std::pair(image.to(torch::kFloat) / 255, label); })
      .prefetch();
}

}  // namespace

int main(int argc, char** argv) try {
  std::string folder = "fashion_mnist_tfrecord";
  std::int64_t images = 60'000;
  for (int i = 1; i < argc; ++i) {
    if (std::strcmp(argv[i], "--test") == 0) images = 2'000, folder = "/tmp/lockstep_tfrecord_" + std::to_string(getpid());
    else if (std::strcmp(argv[i], "--folder") == 0 && i + 1 < argc) folder = argv[++i];
  }
  torch::manual_seed(1);
  ls::MultiWorkerMirroredStrategy strategy;
  if (strategy.is_chief() && !std::filesystem::exists(file_name(folder, kFiles - 1))) write_files(folder, images);
  strategy.reduce("sum", torch::zeros({}));  // the others wait until the files are there

  const std::int64_t global_batch = 64 * strategy.num_replicas_in_sync();
  const auto dataset = read_files(folder, global_batch);
  const auto distributed = strategy.experimental_distribute_dataset(dataset, {.shard_report = true});
  if (strategy.is_chief()) std::cout << distributed.explain();

  auto scope = strategy.scope();
  auto model = ls::mirrored<torch::nn::Sequential>(torch::nn::Flatten(), torch::nn::Linear(784, 128), torch::nn::ReLU(),
                                                   torch::nn::Linear(128, 10), torch::nn::LogSoftmax(1));
  auto optimizer = ls::optimizer<torch::optim::Adam>(model, 1e-3);
  float loss = 0;
  auto iterator = distributed.make_iterator();
  while (const auto batch = iterator.next()) {
    const auto losses = strategy.run([&](torch::Tensor x, torch::Tensor y) {
      auto mean = ls::compute_average_loss(torch::nll_loss(model->forward(x), y, {}, torch::Reduction::None), global_batch);
      mean.backward();
      optimizer.step();
      return mean.detach();
    }, *batch);
    loss = strategy.reduce("sum", losses).item<float>();
  }
  const auto report = iterator.shard_report();
  if (images < 60'000 && strategy.is_chief()) remove_files(folder);
  if (strategy.is_chief()) std::cout << "loss " << loss << "\n" << report;
  return report.is_once() && report.total == images ? 0 : 1;
} catch (const std::exception& error) {
  std::cerr << "tfrecord_shards: " << error.what() << "\n";
  return 1;
}

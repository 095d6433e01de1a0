// Runs one input pipeline in windows that a driver asks for on standard input (see train_bench.cc for the protocol):
//
//   input_bench --work=NAME --folder=FOLDER       the pipelines are listed below; FOLDER has the files of --work=files
//   input_bench --work=files --folder=FOLDER      writes them, unless they are there
//
// A window goes on where the last one stopped; at the end of the data a new pass begins.

#include <torch/torch.h>

#include <chrono>
#include <cstdio>
#include <filesystem>
#include <functional>
#include <iostream>
#include <map>
#include <random>
#include <sstream>
#include <stdexcept>
#include <utility>

#include "bench/input_training.h"
#include "lockstep/data/dataset.h"
#include "lockstep/data/distributed_dataset.h"
#include "lockstep/data/fashion_mnist.h"
#include "lockstep/data/io/output_file.h"
#include "lockstep/data/io/tf_record.h"
#include "lockstep/data/parse_example.h"
#include "lockstep/strategy/mirrored_strategy.h"

namespace bench {
namespace {

namespace data = lockstep::data;
using Clock = std::chrono::steady_clock;

constexpr std::int64_t kBatch = 128;
constexpr int kShards = 4;

// Reads the next batch and returns how many examples it has; 0 at the end of a pass, after which a new one has begun.
using Source = std::function<std::int64_t()>;

void write_all(const std::string& path, const std::function<void(const std::string& part)>& write) {
  if (std::filesystem::exists(path)) return;
  write(path + ".part");
  std::filesystem::rename(path + ".part", path);
}

std::string random_bytes(std::mt19937_64& draw, std::size_t size) {
  std::string bytes(size, '\0');
  for (auto& byte : bytes) byte = static_cast<char>(draw());
  return bytes;
}

void write_records(const std::string& path) {
  std::mt19937_64 draw(1);
  data::RecordWriter writer(path);
  for (int record = 0; record < 100'000; ++record) writer.write(random_bytes(draw, 1024));
  writer.close();
}

// Images as bytes.
void write_examples(const std::string& path, const data::Dataset& images) {
  data::RecordWriter writer(path);
  for (const auto& element : images) {
    const auto pixels = (element[0] * 255).round().to(at::kByte).contiguous();
    writer.write(data::serialize_example(
        {{"image", std::vector<std::string>{std::string(static_cast<const char*>(pixels.data_ptr()), pixels.nbytes())}},
         {"label", std::vector<std::int64_t>{element[1].item<std::int64_t>()}}}));
  }
  writer.close();
}

// 100 MB of lines of about 70 bytes.
void write_text(const std::string& path) {
  std::mt19937_64 draw(2);
  data::OutputFile file(path);
  for (std::size_t bytes = 0; bytes < 100'000'000;) {
    std::string line(20 + draw() % 100, '\0');
    for (auto& letter : line) letter = static_cast<char>('a' + draw() % 26);
    line.push_back('\n');
    file.write(line);
    bytes += line.size();
  }
  file.close();
}

void write_files(const std::string& folder) {
  std::filesystem::create_directories(folder);
  write_all(folder + "/records.tfrecord", write_records);
  const auto images = data::fashion_mnist("train");
  write_all(folder + "/examples.tfrecord", [&](const std::string& part) { write_examples(part, images); });
  for (int shard = 0; shard < kShards; ++shard)
    write_all(folder + "/shard" + std::to_string(shard) + ".tfrecord",
              [&](const std::string& part) { write_examples(part, images.shard(kShards, shard)); });
  write_all(folder + "/lines.txt", write_text);
}

std::int64_t rows_of(const data::Element& batch) { return batch.components().at(0).sizes().at(0); }

// Pass after pass.
Source iterate(const data::Dataset& dataset) {
  auto iterator = std::make_shared<data::Iterator>(dataset.make_iterator());
  return [dataset, iterator, rows = std::int64_t{0}, all = std::int64_t{-1}]() mutable {
    data::Element batch;
    if (iterator->next(batch)) {
      const auto some = rows_of(batch);
      rows += some;
      return some;
    }
    if (all >= 0 && rows != all) throw std::runtime_error("a pass had another number of examples than the one before");
    all = std::exchange(rows, 0);
    *iterator = dataset.make_iterator();
    return std::int64_t{0};
  };
}

// Batches of serialised examples: parsed, the images as floats.
data::Dataset decoded(const data::Dataset& batches) {
  const data::ExampleParser parse({data::Feature::raw("image", at::kByte, {1, 28, 28}), data::Feature::int64("label")});
  return batches.map(parse).map(
      [](at::Tensor image, at::Tensor label) { return std::pair(image.to(at::kFloat).div_(255), label); });
}

data::Dataset parsed_examples(const std::string& folder) {
  return decoded(data::Dataset::tf_record({folder + "/examples.tfrecord"}).batch(kBatch));
}

data::Dataset mapped_range(int parallel) {
  return data::Dataset::range(10'000'000).map([](at::Tensor x) { return x + 1; }, parallel).batch(kBatch);
}

// As a user trains from files: shards read in turns, shuffled, parsed by the batch.
data::Dataset shuffled_examples(const std::string& folder) {
  return decoded(data::Dataset::list_files({folder + "/shard*.tfrecord"})
                     .interleave([](const std::string& file) { return data::Dataset::tf_record({file}); }, kShards)
                     .shuffle(10'000, 1)
                     .batch(kBatch));
}

data::Dataset shuffled_images() { return data::fashion_mnist("train").shuffle(60'000, 1).batch(kBatch); }

Source distribute() {
  auto strategy = std::make_shared<lockstep::MirroredStrategy>(std::vector<std::string>{"CPU:0", "CPU:1"});
  auto distributed =
      std::make_shared<lockstep::DistributedDataset>(strategy->experimental_distribute_dataset(shuffled_images()));
  auto iterator = std::make_shared<lockstep::DistributedIterator>(distributed->make_iterator());
  return [strategy, distributed, iterator] {
    if (const auto batch = iterator->next()) return rows_of(batch->values()[0]) + rows_of(batch->values()[1]);
    *iterator = distributed->make_iterator();
    return std::int64_t{0};
  };
}

Source train(const data::Dataset& batches) {
  auto training = std::make_shared<InputTraining>(batches);
  return [training] { return training->step(); };
}

// LibTorch's own loader, with two workers. It has no labels to gather, which is less work than ours.
Source libtorch_loader() {
  auto images = torch::data::datasets::TensorDataset(torch::rand({60'000, 1, 28, 28}));
  auto set = images.map(torch::data::transforms::Stack<torch::data::TensorExample>());
  using Loader = decltype(torch::data::make_data_loader<torch::data::samplers::RandomSampler>(
      set, torch::data::DataLoaderOptions().batch_size(kBatch).workers(2)));
  auto loader = std::make_shared<Loader>(torch::data::make_data_loader<torch::data::samplers::RandomSampler>(
      set, torch::data::DataLoaderOptions().batch_size(kBatch).workers(2)));
  using Pass = decltype((*loader)->begin());
  auto pass = std::make_shared<Pass>((*loader)->begin());
  return [loader, pass] {
    if (*pass == (*loader)->end()) {
      *pass = (*loader)->begin();
      return std::int64_t{0};
    }
    const auto rows = (*pass)->data.size(0);
    ++*pass;
    return rows;
  };
}

Source make_source(const std::string& work, const std::string& folder) {
  using data::Dataset;
  const auto records = Dataset::tf_record({folder + "/records.tfrecord"});
  const std::map<std::string, std::function<Source()>> works = {
      {"records", [&] { return iterate(records.batch(kBatch)); }},
      {"shuffled_records", [&] { return iterate(records.shuffle(10'000, 1).batch(kBatch).prefetch()); }},
      {"examples", [&] { return iterate(parsed_examples(folder)); }},
      {"examples_prefetched", [&] { return iterate(parsed_examples(folder).prefetch()); }},
      {"range", [&] { return iterate(Dataset::range(10'000'000).batch(kBatch)); }},
      {"range_map", [&] { return iterate(mapped_range(1)); }},
      {"range_map_parallel", [&] { return iterate(mapped_range(data::kAutotune)); }},
      {"images", [&] { return iterate(shuffled_images()); }},
      {"images_libtorch", libtorch_loader},
      {"distributed_images", distribute},
      {"train_memory", [&] { return train(shuffled_images()); }},
      {"train_records", [&] { return train(shuffled_examples(folder)); }},
      {"lines", [&] { return iterate(Dataset::text_lines({folder + "/lines.txt"}).batch(kBatch)); }},
  };
  const auto found = works.find(work);
  if (found == works.end()) throw std::invalid_argument("unknown work '" + work + "'");
  return found->second();
}

void run_window(const Source& next, double seconds) {
  const auto begin = Clock::now();
  const auto elapsed = [&] { return std::chrono::duration<double>(Clock::now() - begin).count(); };
  std::int64_t examples = 0;
  std::int64_t steps = 0;
  while (elapsed() < seconds) {
    examples += next();
    ++steps;
  }
  const double took = elapsed();
  std::printf("{\"examples_per_s\": %.1f, \"steps\": %lld, \"seconds\": %.4f, \"loss\": 0}\n",
              static_cast<double>(examples) / took, static_cast<long long>(steps), took);
  std::fflush(stdout);
}

void serve(const Source& next) {
  std::printf("{\"ready\": true, \"libtorch\": \"%s\"}\n", TORCH_VERSION);
  std::fflush(stdout);
  for (std::string line; std::getline(std::cin, line);) {
    std::istringstream words(line);
    std::string command;
    double seconds = 0;
    words >> command >> seconds;
    if (command == "run") run_window(next, seconds);
    else if (command == "quit") return;
    else throw std::invalid_argument("unknown command '" + line + "'");
  }
}

}  // namespace
}  // namespace bench

int main(int argc, char** argv) try {
  std::map<std::string, std::string> arguments;
  for (int i = 1; i < argc; ++i) {
    const std::string text = argv[i];
    const auto equals = text.find('=');
    if (text.rfind("--", 0) != 0 || equals == std::string::npos) throw std::invalid_argument("unknown argument '" + text + "'");
    arguments[text.substr(2, equals - 2)] = text.substr(equals + 1);
  }
  if (arguments["work"] == "files") bench::write_files(arguments["folder"]);
  else bench::serve(bench::make_source(arguments["work"], arguments["folder"]));
  return 0;
} catch (const std::exception& error) {
  std::fprintf(stderr, "input_bench: %s\n", error.what());
  return 1;
}

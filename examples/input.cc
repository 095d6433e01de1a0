// What docs/input.md shows, run as a test: every part fails the program unless it holds.
#include <lockstep/lockstep.h>

#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <iostream>

namespace ls = lockstep;
namespace data = lockstep::data;

namespace {

void expect(bool holds, int line) {
  if (holds) return;
  std::cerr << "line " << line << " of examples/input.cc does not hold\n";
  std::exit(1);
}
#define EXPECT(condition) expect(condition, __LINE__)

// A folder that is gone with its owner.
struct Folder {
  Folder() { std::filesystem::create_directories(path); }
  ~Folder() {
    for (const auto& entry : std::filesystem::directory_iterator(path)) std::filesystem::remove(entry.path());
    std::filesystem::remove(path);
  }
  std::string operator/(const std::string& name) const { return path + "/" + name; }
  std::string path = "/tmp/lockstep_input_" + std::to_string(getpid());
};

void pipelines() {
  // [pipeline]
  auto images = torch::rand({100, 1, 28, 28});
  auto labels = torch::randint(10, {100});
  auto dataset = data::Dataset::from_tensor_slices({images, labels})
                     .shuffle(100, /*seed=*/42)
                     .map([](torch::Tensor image, torch::Tensor label) { return std::pair(image * 2 - 1, label); })
                     .batch(32)
                     .prefetch();
  std::cout << dataset;
  for (const data::Element& batch : dataset) EXPECT(batch[0].size(0) <= 32);
  // [pipeline]
}

void records(const Folder& folder) {
  // [write]
  for (int file = 0; file < 4; ++file) {
    data::RecordWriter writer(folder / ("part" + std::to_string(file) + ".tfrecord"));
    for (std::int64_t k = 0; k < 10; ++k)
      writer.write(data::serialize_example({{"x", std::vector<float>{1.0F * file, 2.0F}}, {"y", std::vector<std::int64_t>{k}}}));
    writer.close();
  }
  // [write]
  // [read]
  const data::ExampleParser parse({data::Feature::float32("x", {2}), data::Feature::int64("y").or_else(-1)});
  auto dataset = data::Dataset::list_files({folder / "part*.tfrecord"})
                     .interleave([](const std::string& file) { return data::Dataset::tf_record({file}); }, /*cycle=*/4)
                     .batch(8)    // parsed a batch at a time, which is much faster than one by one
                     .map(parse);
  // [read]
  EXPECT(dataset.reduce(data::Element(torch::zeros({}, torch::kLong)), [](const data::Element& sum, const data::Element& batch) {
    return data::Element(sum[0] + batch.at("y").sum());
  })[0].item<std::int64_t>() == 4 * 45);
}

void tables(const Folder& folder) {
  std::ofstream(folder / "people.csv") << "name,age,height\n\"Doe, Jane\",31,1.70\nJohn,,1.82\n";
  // [csv]
  auto people = data::Dataset::csv({folder / "people.csv"}, {{"height", data::FeatureKind::kFloat},
                                                             {"age", data::FeatureKind::kInt64, "0"}});
  // [csv]
  EXPECT(people.reduce(data::Element(torch::zeros({}, torch::kLong)), [](const data::Element& sum, const data::Element& row) {
    return data::Element(sum[0] + row.at("age"));
  })[0].item<std::int64_t>() == 31);
}

void positions() {
  // [position]
  auto dataset = data::Dataset::range(1'000).shuffle(100, 7).batch(10);
  auto iterator = dataset.make_iterator();
  for (int step = 0; step < 30; ++step) iterator.next();
  const std::string position = iterator.save();  // shuffle buffers included

  auto again = dataset.make_iterator();  // here, or in another process
  again.restore(position);
  EXPECT(torch::equal((*again.next())[0], (*iterator.next())[0]));
  // [position]
}

void distribution(const Folder& folder) {
  // [distribute]
  ls::MirroredStrategy strategy({"CPU:0", "CPU:1"});
  auto dataset = data::Dataset::tf_record({folder / "part0.tfrecord", folder / "part1.tfrecord"}).batch(6);
  auto distributed = strategy.experimental_distribute_dataset(dataset, {.shard_report = true});
  std::cout << distributed.explain();

  auto iterator = distributed.make_iterator();
  while (auto batch = iterator.next()) {}
  const ls::ShardReport report = iterator.shard_report();
  std::cout << report;
  EXPECT(report.is_once() && report.total == 20);
  // [distribute]
}

void speed() {
  // [benchmark]
  auto dataset = data::Dataset::range(10'000).map([](torch::Tensor x) { return x + 1; }, data::kAutotune).batch(128).prefetch();
  std::cout << dataset.benchmark();
  // [benchmark]
}

}  // namespace

int main() try {
  const Folder folder;
  pipelines();
  records(folder);
  tables(folder);
  positions();
  distribution(folder);
  speed();
} catch (const std::exception& error) {
  std::cerr << "input: " << error.what() << "\n";
  return 1;
}

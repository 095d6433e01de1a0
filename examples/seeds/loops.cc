#include "loops.h"

#include <unistd.h>

#include <filesystem>

#include "page.h"

namespace seeds {

// The sum of a function of every row, epoch after epoch.
void train_epochs() {
  const auto dataset = ls::data::Dataset::range(8).batch(4);
  ls::MirroredStrategy my_strategy({"CPU:0", "CPU:1"});
  auto scope = my_strategy.scope();
  const auto distribute_train_epoch = [&](const ls::DistributedDataset& dist_dataset) {
    const auto replica_fn = [](torch::Tensor input) { return (input * 10).sum(); };
    auto total_result = torch::zeros({}, torch::kLong);
    for (auto x : dist_dataset) {
      auto per_replica_result = my_strategy.run(replica_fn, x);
      total_result += my_strategy.reduce(ls::ReduceOp::kSum, per_replica_result);
    }
    return total_result;
  };

  auto dist_dataset = my_strategy.experimental_distribute_dataset(dataset);
  for (int epoch = 0; epoch < 2; ++epoch) {
    auto train_result = distribute_train_epoch(dist_dataset);
    shows(train_result, "<Tensor: shape=(), dtype=int64, value=280>");
  }
}

namespace {

// Four files of three records each, in a folder that goes with them.
class RecordFiles {
 public:
  RecordFiles() : folder_(std::filesystem::temp_directory_path() / ("lockstep_seeds_" + std::to_string(getpid()))) {
    std::filesystem::create_directories(folder_);
    for (int file = 1; file <= 4; ++file) {
      names_.push_back((folder_ / (std::to_string(file) + ".tfr")).string());
      std::vector<std::string> records;
      for (std::int64_t i = 0; i < 3; ++i)
        records.push_back(ls::data::serialize_example({{"x", std::vector<std::int64_t>{10 * file + i}}}));
      ls::data::write_records(names_.back(), records);
    }
  }
  ~RecordFiles() {
    std::error_code ignored;
    std::filesystem::remove_all(folder_, ignored);
  }
  RecordFiles(const RecordFiles&) = delete;
  RecordFiles& operator=(const RecordFiles&) = delete;

  const std::vector<std::string>& names() const { return names_; }

 private:
  const std::filesystem::path folder_;
  std::vector<std::string> names_;
};

constexpr std::int64_t kRecordsABatch = 4;

}  // namespace

// The records as they stand in the files.
void read_record_files() {
  const RecordFiles files;
  ls::MirroredStrategy strategy({"CPU:0", "CPU:1"});
  auto dataset = ls::data::Dataset::tf_record(files.names()).batch(kRecordsABatch);
  auto dist_dataset = strategy.experimental_distribute_dataset(dataset);
  const auto replica_fn = [](const ls::data::Element& x) { return static_cast<int>(x.components()[0].sizes()[0]); };
  std::vector<ls::PerReplica<int>> records;
  for (auto x : dist_dataset) records.push_back(strategy.run(replica_fn, x));
  shows(records, R"([PerReplica:{
  0: 2,
  1: 2
}, PerReplica:{
  0: 2,
  1: 2
}, PerReplica:{
  0: 2,
  1: 2
}])");
}

// The same files, parsed. The types of a function's parameters are its signature: what does not fit them is not called.
void read_record_files_with_a_signature() {
  const RecordFiles files;
  ls::MirroredStrategy strategy({"CPU:0", "CPU:1"});
  auto dataset = ls::data::Dataset::tf_record(files.names())
                     .batch(kRecordsABatch)
                     .map(ls::data::ExampleParser({ls::data::Feature::int64("x")}));
  auto dist_dataset = strategy.experimental_distribute_dataset(dataset);
  const auto train_step = [](torch::Tensor inputs) { return inputs.sum(); };
  std::int64_t total = 0;
  for (auto x : dist_dataset) total += strategy.reduce("sum", strategy.run(train_step, x)).item<std::int64_t>();
  expect(total == 3 * (10 + 20 + 30 + 40) + 4 * (0 + 1 + 2));
}

void rows_of_an_array() {
  ls::MirroredStrategy strategy({"CPU:0"});
  auto numpy_input = torch::ones({10});
  auto dataset = strategy.experimental_make_numpy_dataset({numpy_input});
  shows((*dataset.begin())[0], "<Tensor: shape=(), dtype=float32, value=1.0>");
  dataset = dataset.batch(2);
  auto dist_dataset = strategy.experimental_distribute_dataset(dataset);
  expect(dist_dataset.cardinality() == 5);
  for (auto batch : dist_dataset) expect(torch::equal(batch[0][0], torch::ones({2})));
}

// What the page writes into the environment, and the question which of the tasks this process is. The strategy has one worker
// of this kind, so that it waits for nobody.
void one_process_of_a_cluster() {
  const auto cluster_of = [](const std::string& workers) {
    return ls::Environment::of({{"TF_CONFIG", R"({"cluster": {"worker": [)" + workers + R"(], "ps": ["localhost:34567"]},
                                                  "task": {"type": "worker", "index": 0}})"}});
  };
  const ls::TFConfigClusterResolver two({.variables = cluster_of(R"("localhost:12345", "localhost:23456")")});
  expect(two.cluster_spec().num_tasks("worker") == 2 && two.cluster_spec().task_address("ps", 0) == "localhost:34567");
  expect(two.task_type() == "worker" && two.task_id() == 0);

  ls::MultiWorkerMirroredStrategy strategy(
      std::make_shared<ls::TFConfigClusterResolver>(ls::TFConfigOptions{.variables = cluster_of(R"("localhost:12345")")}));
  std::string what_it_does;
  if (strategy.cluster_resolver()->task_type() == "worker") what_it_does = "what only workers do";
  else if (strategy.cluster_resolver()->task_type() == "ps") what_it_does = "what only parameter servers do";
  shows(what_it_does, "what only workers do");
}

}  // namespace seeds

#include <map>
#include <memory>
#include <mutex>

#include "lockstep/base/str.h"
#include "lockstep/data/distributed_dataset.h"
#include "lockstep/data/io/tf_record.h"
#include "lockstep/replica/replica_set.h"
#include "tests/support/data_testing.h"
#include "tests/support/scratch_folder.h"
#include "tests/support/worker_threads.h"

// Distributed datasets of several workers: positions, reports and explanations.

namespace lockstep {
namespace {

using data::Dataset;
using data::Element;
using data::testing::Ints;
using data::testing::ints;
using data::testing::numbers;

std::unique_ptr<ReplicaSet> replicas_of(WorkerGroup& group) {
  const auto& layout = group.layout();
  std::vector<LogicalDevice> devices;
  for (int i = 0; i < layout.replicas[static_cast<std::size_t>(layout.rank)]; ++i)
    devices.push_back(find_logical_device(str("CPU:", i)));
  ReplicaSetOptions options;
  options.workers = std::shared_ptr<WorkerGroup>(std::shared_ptr<void>(), &group);
  return std::make_unique<ReplicaSet>(nullptr, std::move(devices), options);
}

// The rows of all replicas of all workers, by step.
class Seen {
 public:
  void add(std::size_t step, const PerReplica<Element>& batch) {
    const std::lock_guard lock(mu_);
    for (const auto& part : batch)
      for (const auto value : ints(part[0])) steps_[step].push_back(value);
  }
  Ints sorted() const {
    Ints all;
    for (const auto& [step, values] : steps_) all.insert(all.end(), values.begin(), values.end());
    std::ranges::sort(all);
    return all;
  }
  std::map<std::size_t, Ints> by_step() const {
    auto steps = steps_;
    for (auto& [step, values] : steps) std::ranges::sort(values);
    return steps;
  }

 private:
  std::mutex mu_;
  std::map<std::size_t, Ints> steps_;
};

Dataset by(const Dataset& dataset, AutoShardPolicy policy) { return dataset.with_options({policy}); }

// Ten numbers a file, as text.
class Files {
 public:
  explicit Files(int count) {
    for (int file = 0; file < count; ++file) {
      std::string lines;
      for (int line = 0; line < 10; ++line) lines += str(10 * file + line, "\n");
      names_.push_back(folder_.write(str("part", file, ".txt"), lines));
    }
  }
  Dataset numbers() const {
    return Dataset::text_lines(names_).map(
        [](const std::string& line) { return at::scalar_tensor(static_cast<std::int64_t>(std::stoll(line)), at::kLong); });
  }

 private:
  testing::ScratchFolder folder_;
  std::vector<std::string> names_;
};

TEST(WorkersInput, ByDataAPositionFitsAnyNumberOfWorkers) {
  const auto make = [] { return Dataset::range(100).shuffle(30, 5).batch(7); };
  Seen whole;
  testing::on_workers({2, 1}, [&](WorkerGroup& group) {
    const auto set = replicas_of(group);
    std::size_t step = 0;
    for (const auto& batch : DistributedDataset::from_dataset(*set, make())) whole.add(step++, batch);
  });
  Seen parts;
  std::string position;
  testing::on_workers({2, 1}, [&](WorkerGroup& group) {
    const auto set = replicas_of(group);
    auto iterator = DistributedDataset::from_dataset(*set, make()).make_iterator();
    for (std::size_t step = 0; step < 6; ++step) parts.add(step, iterator.get_next());
    const auto mine = iterator.save();
    if (group.layout().rank == 0) position = mine;
  });
  testing::on_workers({1, 1, 2}, [&](WorkerGroup& group) {
    const auto set = replicas_of(group);
    auto iterator = DistributedDataset::from_dataset(*set, make()).make_iterator();
    iterator.restore(position);
    for (std::size_t step = 6; const auto batch = iterator.next(); ++step) parts.add(step, *batch);
  });
  EXPECT_EQ(parts.by_step(), whole.by_step());
  EXPECT_EQ(parts.sorted(), numbers(100));
}

TEST(WorkersInput, ByFileEveryWorkerGoesOnFromItsOwnPosition) {
  const Files files(5);
  const auto make = [&] { return by(files.numbers().batch(4), AutoShardPolicy::kFile); };
  Seen parts;
  std::vector<std::string> positions(2);
  testing::on_workers({1, 1}, [&](WorkerGroup& group) {
    const auto set = replicas_of(group);
    auto iterator = DistributedDataset::from_dataset(*set, make()).make_iterator();
    for (std::size_t step = 0; step < 3; ++step) parts.add(step, iterator.get_next());
    positions[static_cast<std::size_t>(group.layout().rank)] = iterator.save();
  });
  testing::on_workers({1, 1}, [&](WorkerGroup& group) {
    const auto set = replicas_of(group);
    const auto distributed = DistributedDataset::from_dataset(*set, make());
    auto iterator = distributed.make_iterator();
    iterator.restore(positions[static_cast<std::size_t>(group.layout().rank)]);
    for (std::size_t step = 3; const auto batch = iterator.next(); ++step) parts.add(step, *batch);
    auto other = distributed.make_iterator();
    EXPECT_EQ(testing::code_of([&] { other.restore(positions[static_cast<std::size_t>(1 - group.layout().rank)]); }),
              ErrorCode::kInvalidArgument);
  });
  EXPECT_EQ(parts.sorted(), numbers(50));
}

ShardReport report_of(WorkerGroup& group, const Dataset& dataset) {
  const auto set = replicas_of(group);
  auto iterator = DistributedDataset::from_dataset(*set, dataset, {.shard_report = true}).make_iterator();
  EXPECT_EQ(iterator.shard_report().verdict, ShardReport::Verdict::kUnfinished);
  while (iterator.next()) {
  }
  return iterator.shard_report();
}

TEST(WorkersInput, TheReportSaysWhoSawHowMuch) {
  const Files files(4);
  testing::on_workers({2, 1}, [&](WorkerGroup& group) {
    const auto by_data = report_of(group, Dataset::range(50).batch(7));
    EXPECT_TRUE(by_data.is_once()) << by_data;
    EXPECT_EQ(by_data.examples, (std::vector<std::int64_t>{22, 14, 14}));
    const auto by_file = report_of(group, by(files.numbers().batch(6), AutoShardPolicy::kFile));
    EXPECT_TRUE(by_file.is_once()) << by_file;
    EXPECT_EQ(by_file.total, 40);
    const auto off = report_of(group, by(Dataset::range(20).batch(6), AutoShardPolicy::kOff));
    EXPECT_EQ(off.verdict, ShardReport::Verdict::kRepeated) << off;
    EXPECT_EQ(off.times, 2);
  });
}

TEST(WorkersInput, TheReportFindsWorkersThatReadTheSame) {
  testing::on_workers({1, 1}, [&](WorkerGroup& group) {
    const auto set = replicas_of(group);
    for (const bool is_own : {false, true}) {
      const auto distributed = DistributedDataset::from_function(
          *set,
          [&](const InputContext& context) {
            const auto all = Dataset::range(20);
            return (is_own ? all.shard(context.num_input_pipelines, context.input_pipeline_id) : all).batch(5);
          },
          {.shard_report = true});
      auto iterator = distributed.make_iterator();
      while (iterator.next()) {
      }
      const auto report = iterator.shard_report();
      EXPECT_EQ(report.verdict, is_own ? ShardReport::Verdict::kOnce : ShardReport::Verdict::kSameData) << report;
    }
  });
}

TEST(WorkersInput, ExplainSaysWhoReadsWhat) {
  const Files files(3);
  testing::on_workers({1, 1}, [&](WorkerGroup& group) {
    const auto set = replicas_of(group);
    const auto by_file = DistributedDataset::from_dataset(*set, files.numbers().batch(4)).explain();
    EXPECT_THAT(by_file, ::testing::HasSubstr("AUTO, here FILE"));
    EXPECT_THAT(by_file, ::testing::HasSubstr("2 files: part0.txt, part2.txt"));
    EXPECT_THAT(by_file, ::testing::HasSubstr("1 file: part1.txt"));
    const auto by_data = DistributedDataset::from_dataset(*set, Dataset::range(20).batch(5)).explain();
    EXPECT_THAT(by_data, ::testing::HasSubstr("AUTO, here DATA"));
    EXPECT_THAT(by_data, ::testing::HasSubstr("each batch of 5 rows is cut into 3, 2"));
  });
}

TEST(WorkersInput, FewerFilesThanWorkersAreAnErrorOnAll) {
  const Files files(1);
  testing::on_workers({1, 1}, [&](WorkerGroup& group) {
    const auto set = replicas_of(group);
    EXPECT_EQ(testing::code_of([&] { DistributedDataset::from_dataset(*set, files.numbers().batch(2)); }),
              ErrorCode::kInvalidArgument);
  });
}

}  // namespace
}  // namespace lockstep

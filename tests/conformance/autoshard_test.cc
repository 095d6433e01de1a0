#include "lockstep/data/autoshard.h"

#include <set>

#include "lockstep/data/io/tf_record.h"
#include "tests/conformance/testing.h"
#include "tests/support/scratch_folder.h"

// Which files and rows reach which worker.

namespace lockstep::testing {
namespace {

using data::Dataset;
using data::Element;
using Texts = std::vector<std::string>;

// Ten files of ten records: "Record r of file f".
class AutoShardFiles : public ::testing::Test {
 protected:
  AutoShardFiles() {
    for (int file = 0; file < 10; ++file) {
      Texts records;
      for (int record = 0; record < 10; ++record) records.push_back(name_of_record(file, record));
      files_.push_back(folder_ / str("file", file, ".tfrecord"));
      data::write_records(files_.back(), records);
    }
  }

  static std::string name_of_record(int file, int record) { return str("Record ", record, " of file ", file); }

  static Texts all_of(const Dataset& dataset) {
    Texts texts;
    for (const Element& element : dataset) texts.push_back(element.text());
    return texts;
  }

  static Texts records_of(const std::vector<int>& files) {
    Texts texts;
    for (const int file : files)
      for (int record = 0; record < 10; ++record) texts.push_back(name_of_record(file, record));
    return texts;
  }

  Dataset by(AutoShardPolicy policy) const { return Dataset::tf_record(files_).with_options({policy}); }

  ScratchFolder folder_;
  Texts files_;
};

TEST_F(AutoShardFiles, AWorkerReadsEveryNthFile) {
  EXPECT_EQ(all_of(data::auto_shard(by(AutoShardPolicy::kFile), 5, 3)), records_of({3, 8}));
  EXPECT_EQ(all_of(data::auto_shard(by(AutoShardPolicy::kAuto), 5, 0)), records_of({0, 5}));
}

TEST_F(AutoShardFiles, ByDataItReadsEveryNthRecord) {
  Texts expected;
  for (int file = 0; file < 10; ++file)
    for (const int record : {0, 5}) expected.push_back(name_of_record(file, record));
  EXPECT_EQ(all_of(data::auto_shard(by(AutoShardPolicy::kData), 5, 0)), expected);
}

TEST_F(AutoShardFiles, AWorkerBeyondTheLastFileHasNothing) {
  EXPECT_EQ(all_of(data::auto_shard(by(AutoShardPolicy::kFile), 500, 499)), Texts{});
  EXPECT_EQ(code_of([&] { all_of(data::auto_shard(by(AutoShardPolicy::kFile), 500, 0)); }), ErrorCode::kInvalidArgument);
}

// Every worker builds the pipeline anew, as processes do.
TEST_F(AutoShardFiles, ShuffledFilesAreReadOnce) {
  const auto all = records_of({0, 1, 2, 3, 4, 5, 6, 7, 8, 9});
  for (const auto policy : {AutoShardPolicy::kFile, AutoShardPolicy::kData}) {
    std::multiset<std::string> seen;
    for (int worker = 0; worker < 2; ++worker) {
      const auto dataset = Dataset::list_files({folder_ / "*.tfrecord"}, 7)
                               .interleave([](const std::string& file) { return Dataset::tf_record({file}); }, 3)
                               .with_options({policy});
      for (const auto& text : all_of(data::auto_shard(dataset, 2, worker))) seen.insert(text);
    }
    EXPECT_EQ(seen, std::multiset<std::string>(all.begin(), all.end()));
  }
}

TEST(AutoShardHint, PutsTheWorkersWhereThePipelineSays) {
  const auto dataset = Dataset::range(100).shard(data::kShardHint).with_options({AutoShardPolicy::kHint});
  std::vector<std::int64_t> seen;
  for (const Element& element : data::auto_shard(dataset, 10, 0)) seen.push_back(element[0].item<std::int64_t>());
  EXPECT_EQ(seen, (std::vector<std::int64_t>{0, 10, 20, 30, 40, 50, 60, 70, 80, 90}));
  EXPECT_EQ(code_of([&] { dataset.make_iterator().next(); }), ErrorCode::kFailedPrecondition);
}

}  // namespace
}  // namespace lockstep::testing

#include <gmock/gmock.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <unistd.h>

#include <csignal>
#include <fstream>
#include <limits>
#include <random>

#include "lockstep/data/benchmark.h"
#include "lockstep/data/io/tf_record.h"
#include "tests/support/data_testing.h"
#include "tests/support/scratch_folder.h"

// Datasets of files: records, lines, rows of tables, names.

namespace lockstep::data {
namespace {

using lockstep::testing::ScratchFolder;
using testing::code_of;
using ::testing::HasSubstr;
using testing::Ints;
using testing::ints;
using testing::text_of;

using Texts = std::vector<std::string>;

Texts texts(const Dataset& dataset) {
  Texts all;
  for (const Element& element : dataset) all.push_back(element.text());
  return all;
}

TEST(FileSources, ReadOneFileAfterTheOther) {
  const ScratchFolder folder;
  const auto first = folder.write("a.txt", "one\ntwo\n");
  const auto second = folder.write("b.txt", "three");
  EXPECT_EQ(texts(Dataset::text_lines({first, second})), (Texts{"one", "two", "three"}));
  EXPECT_EQ(texts(Dataset::fixed_length_records({first}, {.record = 4})), (Texts{"one\n", "two\n"}));
  EXPECT_EQ(code_of([&] { texts(Dataset::text_lines({first, folder / "none"})); }), ErrorCode::kNotFound);
}

TEST(FileSources, EmptyFilesHaveNoRecords) {
  const ScratchFolder folder;
  const auto empty = folder.write("empty", "");
  EXPECT_EQ(texts(Dataset::text_lines({empty})), Texts());
  EXPECT_EQ(texts(Dataset::tf_record({empty})), Texts());
  for (const auto compression : {Compression::kNone, Compression::kGzip})
    EXPECT_EQ(
        texts(Dataset::fixed_length_records({empty}, {.record = 4, .header = 4, .footer = 1}, {.compression = compression})),
        Texts());
}

// What lies in an earlier piece than the damage of a compressed file is given first.
TEST(FileSources, GiveWhatIsBeforeDamageOfACompressedFile) {
  const ScratchFolder folder;
  std::vector<std::string> records;
  std::mt19937 draw(1);
  for (int i = 0; i < 1200; ++i) {
    records.emplace_back(1000, '\0');
    for (auto& byte : records.back()) byte = static_cast<char>(draw());
  }
  write_records(folder / "a", records, Compression::kGzip);
  auto bytes = lockstep::testing::content_of(folder / "a");
  bytes.resize(bytes.size() / 2);
  bytes += std::string(1000, '\xff');
  folder.write("a", bytes);
  auto iterator = Dataset::tf_record({folder / "a"}, {.compression = Compression::kGzip}).make_iterator();
  std::size_t count = 0;
  const auto text = text_of([&] {
    for (Element element; iterator.next(element); ++count) EXPECT_EQ(element.text(), records[count]);
  });
  EXPECT_THAT(text, HasSubstr("kDataLoss"));
  EXPECT_GT(count, 250U);
  EXPECT_LT(count, 601U);
}

TEST(FileSources, GoOnBehindDamageWhenAsked) {
  const ScratchFolder folder;
  write_records(folder / "a", {"first", "second", "third"});
  write_records(folder / "b", {"fourth"});
  auto bytes = lockstep::testing::content_of(folder / "a");
  bytes[12 + 5 + 4 + 12] ^= 1;  // in the data of the second record
  folder.write("a", bytes);
  const auto text = text_of([&] { texts(Dataset::tf_record({folder / "a", folder / "b"})); });
  EXPECT_THAT(text, HasSubstr("kDataLoss"));
  EXPECT_THAT(text, HasSubstr("byte 21 of '" + folder / "a"));
  EXPECT_EQ(texts(Dataset::tf_record({folder / "a", folder / "b"}, {.ignore_errors = true})),
            (Texts{"first", "third", "fourth"}));
  bytes[12 + 5 + 4] ^= 1;  // in its length: the rest of the file is lost
  folder.write("a", bytes);
  EXPECT_EQ(texts(Dataset::tf_record({folder / "a", folder / "b"}, {.ignore_errors = true})), (Texts{"first", "fourth"}));
}

TEST(FileSources, CountWhatTheyPassOver) {
  const ScratchFolder folder;
  write_records(folder / "a", {"first", "second", "third"});
  auto bytes = lockstep::testing::content_of(folder / "a");
  bytes[12 + 5 + 4 + 12] ^= 1;
  folder.write("a", bytes);
  const auto skipped = std::make_shared<std::atomic<std::int64_t>>(0);
  const auto dataset = Dataset::tf_record({folder / "a"}, {.ignore_errors = true, .skipped = skipped});
  EXPECT_EQ(texts(dataset.repeat(2)).size(), 4U);
  EXPECT_EQ(skipped->load(), 2);
}

TEST(FileSources, AFileThatGrowsIsReadToItsEnd) {
  const ScratchFolder folder;
  const auto file = folder.write("a.txt", "one\n");
  auto iterator = Dataset::text_lines({file}).make_iterator();
  EXPECT_EQ(iterator.next()->text(), "one");
  std::ofstream(file, std::ios::app) << "two\n";
  EXPECT_EQ(iterator.next()->text(), "two");
  EXPECT_FALSE(iterator.next().has_value());
  std::ofstream(file, std::ios::app) << "three\n";
  EXPECT_FALSE(iterator.next().has_value()) << "an end is one for ever";
}

TEST(FileSources, AFileThatShrinksOrVanishesIsAnError) {
  const ScratchFolder folder;
  const auto records = folder / "a";
  write_records(records, {"first", std::string(1'000'000, 'x'), "third"});
  const auto dataset = Dataset::tf_record({records});
  auto iterator = dataset.make_iterator();
  iterator.next();
  ASSERT_EQ(truncate(records.c_str(), 500'000), 0);
  EXPECT_THAT(text_of([&] { iterator.next(); }), HasSubstr("is cut off: 1000016 bytes are needed and 499979 are there"));

  auto before = dataset.make_iterator();
  before.next();
  const auto position = before.save();
  ASSERT_EQ(truncate(records.c_str(), 10), 0);
  EXPECT_THAT(text_of([&] { dataset.make_iterator().restore(position); }),
              HasSubstr("has become shorter: it ends at byte 10, before 21"));
  ASSERT_EQ(unlink(records.c_str()), 0);
  EXPECT_EQ(code_of([&] { dataset.make_iterator().restore(position); }), ErrorCode::kNotFound);
  EXPECT_EQ(code_of([&] { texts(dataset); }), ErrorCode::kNotFound);
}

TEST(FileSources, ReadTablesByName) {
  const ScratchFolder folder;
  const auto file = folder.write("t.csv", "name,age,height\n\"Doe, Jane\",31,1.5\nJohn,,2\n");
  const auto dataset = Dataset::csv({file}, {{"height"}, {"age", FeatureKind::kInt64, "-1"}, {"name", FeatureKind::kBytes}});
  auto iterator = dataset.make_iterator();
  const auto first = *iterator.next();
  EXPECT_EQ(first.at("height").item<float>(), 1.5F);
  EXPECT_EQ(first.at("age").item<std::int64_t>(), 31);
  EXPECT_EQ(first.text(2), "Doe, Jane");
  EXPECT_EQ(iterator.next()->at("age").item<std::int64_t>(), -1);
  EXPECT_FALSE(iterator.next().has_value());
  EXPECT_THAT(text_of([&] { texts(Dataset::csv({file}, {{"weight"}})); }), HasSubstr("no column 'weight'"));
  EXPECT_THAT(text_of([&] { texts(Dataset::csv({file}, {{"age", FeatureKind::kInt64}}).skip(1)); }), HasSubstr("line 3"));
  EXPECT_EQ(code_of([&] { Dataset::csv({file}, {}); }), ErrorCode::kInvalidArgument);
}

TEST(FileSources, QuotesWithinAFieldAreText) {
  const ScratchFolder folder;
  const auto file = folder.write("t.csv", "name,n\n5\" disk,3\n\"a \"\"b\"\"\nc\",4\n");
  Texts names;
  for (const Element& row : Dataset::csv({file}, {{"name", FeatureKind::kBytes}, {"n", FeatureKind::kInt64}}))
    names.push_back(row.text(0) + " " + std::to_string(row.at("n").item<std::int64_t>()));
  EXPECT_EQ(names, (Texts{"5\" disk 3", "a \"b\"\nc 4"}));
}

TEST(FileSources, NumbersThatAFloatCannotHold) {
  const ScratchFolder folder;
  const auto file = folder.write("t.csv", "x\n1e-46\n1e39\n+2\n");
  std::vector<float> values;
  for (const Element& row : Dataset::csv({file}, {{"x"}})) values.push_back(row[0].item<float>());
  EXPECT_EQ(values, (std::vector<float>{0, std::numeric_limits<float>::infinity(), 2}));
  const auto bad = folder.write("b.csv", "x\n+-3\n");
  EXPECT_EQ(code_of([&] { texts(Dataset::csv({bad}, {{"x"}})); }), ErrorCode::kDataLoss);
}

TEST(FileSources, DamagedRowsCanBePassedOver) {
  const ScratchFolder folder;
  const auto file = folder.write("t.csv", "1,2\nx,3\n4,5\n");
  const auto dataset =
      Dataset::csv({file}, {{"a", FeatureKind::kInt64}}, {.has_header = false, .read = {.ignore_errors = true}});
  EXPECT_EQ(testing::values(dataset), (Ints{1, 4}));
}

TEST(FileSources, ListFiles) {
  const ScratchFolder folder;
  for (const char* name : {"b.txt", "a.txt", "c.bin"}) folder.write(name, "");
  EXPECT_EQ(texts(Dataset::list_files({folder / "*.txt"})), (Texts{folder / "a.txt", folder / "b.txt"}));
  EXPECT_EQ(texts(Dataset::list_files({folder / "*", folder / "a*"})).size(), 3U);
  const auto shuffled = Dataset::list_files({folder / "*"}, 3);
  EXPECT_THAT(texts(shuffled), ::testing::UnorderedElementsAre(folder / "a.txt", folder / "b.txt", folder / "c.bin"));
  EXPECT_EQ(code_of([&] { Dataset::list_files({folder / "*.none"}); }), ErrorCode::kNotFound);
}

// Somebody else than the owner of files, and not root.
class Stranger {
 public:
  Stranger() : before_(geteuid()) {
    constexpr uid_t kNobody = 65534;
    is_other_ = seteuid(kNobody) == 0;
  }
  ~Stranger() {
    if (is_other_) EXPECT_EQ(seteuid(before_), 0);
  }

 private:
  const uid_t before_;
  bool is_other_ = false;
};

TEST(FileSources, AFolderWithoutPermissionIsAnError) {
  const ScratchFolder folder;
  const auto file = folder.write("a.txt", "one\n");
  ASSERT_EQ(chmod(folder.path().c_str(), 0), 0);
  {
    const Stranger stranger;
    EXPECT_THAT(text_of([&] { Dataset::list_files({folder / "*"}); }), HasSubstr("Permission denied"));
    EXPECT_EQ(code_of([&] { Dataset::list_files({folder / "*"}); }), ErrorCode::kFailedPrecondition);
    EXPECT_EQ(code_of([&] { texts(Dataset::text_lines({file})); }), ErrorCode::kFailedPrecondition);
    EXPECT_EQ(code_of([&] { testing::values(Dataset::range(3).cache(folder / "cache")); }), ErrorCode::kFailedPrecondition);
  }
  ASSERT_EQ(chmod(folder.path().c_str(), S_IRWXU), 0);
}

TEST(FileSources, FunctionsTakeStrings) {
  const ScratchFolder folder;
  folder.write("a.txt", "1\n2\n");
  folder.write("b.txt", "3\n4\n");
  const auto numbers = Dataset::list_files({folder / "*.txt"})
                           .interleave([](const std::string& file) { return Dataset::text_lines({file}); }, 2, 1, kAutotune)
                           .map([](std::string_view line) {
                             return at::scalar_tensor(static_cast<std::int64_t>(std::stoll(std::string(line))), at::kLong);
                           });
  EXPECT_EQ(testing::values(numbers), (Ints{1, 3, 2, 4}));
  const auto twice = Dataset::text_lines({folder / "a.txt"}).map([](const std::string& line) { return line + line; });
  EXPECT_EQ(texts(twice), (Texts{"11", "22"}));
}

TEST(FileCache, IsMadeByTheFirstWholePass) {
  const ScratchFolder folder;
  const auto file = folder / "cache";
  int reads = 0;
  const auto dataset = Dataset::range(5)
                           .map([&reads](at::Tensor x) {
                             ++reads;
                             return x * 2;
                           })
                           .cache(file);
  {
    auto iterator = dataset.make_iterator();
    iterator.next();
  }
  EXPECT_EQ(code_of([&] { Dataset::list_files({folder / "*"}); }), ErrorCode::kNotFound);
  EXPECT_NE(access(file.c_str(), F_OK), 0) << "a pass that was given up makes no file";
  EXPECT_EQ(testing::values(dataset), (Ints{0, 2, 4, 6, 8}));
  EXPECT_EQ(reads, 6);
  EXPECT_EQ(testing::values(dataset), (Ints{0, 2, 4, 6, 8}));
  EXPECT_EQ(reads, 6) << "the second pass reads the file";
  EXPECT_THAT(text_of([&] { testing::values(Dataset::range(6).cache(file)); }), HasSubstr("is of another pipeline"));
}

TEST(FileCache, IsNotTakenForOtherDataOrForAWholeOne) {
  const ScratchFolder folder;
  folder.make_folder("a");
  folder.make_folder("b");
  const auto first = folder.write("a/f", "one\ntwo\nthree\n");
  const auto second = folder.write("b/f", "other\n");
  const auto cached = [&](const std::string& file) { return Dataset::text_lines({file}).cache(folder / "cache"); };
  EXPECT_EQ(texts(cached(first)).size(), 3U);
  EXPECT_EQ(code_of([&] { texts(cached(second)); }), ErrorCode::kFailedPrecondition);
  EXPECT_EQ(cached(first).benchmark().elements, 3) << "which looks like the same pipeline";

  std::vector<std::string> records;
  std::string_view record;
  for (RecordReader reader(folder / "cache"); reader.next(record);) records.emplace_back(record);
  records.resize(records.size() - 2);
  write_records(folder / "cache", records);
  EXPECT_THAT(text_of([&] { texts(cached(first)); }), HasSubstr("is cut off after 2 elements"));
}

TEST(FileCache, APositionOfTheFirstPassGoesOnInTheFile) {
  const ScratchFolder folder;
  const auto dataset = Dataset::range(6).cache(folder / "cache").repeat(2);
  auto iterator = dataset.make_iterator();
  iterator.next();
  iterator.next();
  const auto position = iterator.save();
  while (iterator.next()) continue;
  auto again = dataset.make_iterator();
  again.restore(position);
  Ints rest;
  for (Element element; again.next(element);) rest.push_back(element[0].item<std::int64_t>());
  EXPECT_EQ(rest, (Ints{2, 3, 4, 5, 0, 1, 2, 3, 4, 5}));
  const auto end = again.save();
  dataset.make_iterator().restore(end);
}

TEST(FileCache, AFolderThatIsNotThereIsAnError) {
  const ScratchFolder folder;
  EXPECT_EQ(code_of([&] { testing::values(Dataset::range(3).cache(folder / "none/cache")); }), ErrorCode::kFailedPrecondition);
}

// No file of this process may become larger.
class SmallDisk {
 public:
  explicit SmallDisk(rlim_t bytes) {
    getrlimit(RLIMIT_FSIZE, &before_);
    const rlimit small = {bytes, before_.rlim_max};
    setrlimit(RLIMIT_FSIZE, &small);
    std::signal(SIGXFSZ, SIG_IGN);
  }
  ~SmallDisk() {
    setrlimit(RLIMIT_FSIZE, &before_);
    std::signal(SIGXFSZ, SIG_DFL);
  }

 private:
  rlimit before_ = {};
};

TEST(FileCache, AFullDiskIsAnErrorAndLeavesNothing) {
  const ScratchFolder folder;
  const auto dataset =
      Dataset::range(4).map([](at::Tensor x) { return at::full({100'000}, x.item<std::int64_t>()); }).cache(folder / "cache");
  {
    const SmallDisk disk(1'000'000);
    EXPECT_EQ(code_of([&] { testing::values(dataset.map([](at::Tensor x) { return x[0]; })); }), ErrorCode::kUnavailable);
  }
  EXPECT_EQ(code_of([&] { Dataset::list_files({folder / "*"}); }), ErrorCode::kNotFound);
  EXPECT_EQ(testing::values(dataset.map([](at::Tensor x) { return x[0]; })), (Ints{0, 1, 2, 3}));
}

TEST(MemoryCache, IsNotReachedByWhatIsDoneToItsElements) {
  const auto dataset = Dataset::range(3).cache();
  for (int pass = 0; pass < 3; ++pass) {
    std::int64_t expected = 0;
    for (const Element& element : dataset) {
      EXPECT_EQ(element[0].item<std::int64_t>(), expected++);
      at::Tensor(element[0]).add_(100);
    }
  }
}

}  // namespace
}  // namespace lockstep::data

#include "lockstep/data/io/tf_record.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstring>
#include <fstream>

#include "lockstep/base/error.h"
#include "lockstep/data/io/crc32c.h"
#include "tests/support/scratch_folder.h"

namespace lockstep::data {
namespace {

using lockstep::testing::content_of;

// A file that is gone with its owner.
class Scratch {
 public:
  std::string path() const { return folder_ / "records"; }

 private:
  lockstep::testing::ScratchFolder folder_;
};

std::vector<std::string> read_all(const std::string& path) {
  RecordReader reader(path);
  std::vector<std::string> records;
  for (std::string_view record; reader.next(record);) records.emplace_back(record);
  return records;
}

ErrorCode code_of(const std::string& path) {
  try {
    read_all(path);
  } catch (const Error& error) {
    return error.code();
  }
  return ErrorCode::kInternal;
}

void overwrite(const std::string& path, const std::string& content) { std::ofstream(path, std::ios::binary) << content; }

TEST(RecordFile, WhatIsWrittenIsRead) {
  const Scratch file;
  const std::vector<std::string> records = {"one", "", std::string(3'000'000, 'x'), std::string("\0\n", 2)};
  write_records(file.path(), records);
  EXPECT_EQ(read_all(file.path()), records);
}

TEST(RecordFile, EveryDamageIsFound) {
  const Scratch file;
  write_records(file.path(), {"first", "second"});
  const auto whole = content_of(file.path());
  const std::size_t second = 16 + 5;  // where the second record begins
  for (std::size_t cut = 1; cut < whole.size(); ++cut) {
    overwrite(file.path(), whole.substr(0, cut));
    if (cut == second) EXPECT_EQ(read_all(file.path()).size(), 1);
    else EXPECT_EQ(code_of(file.path()), ErrorCode::kDataLoss) << "cut to " << cut << " bytes";
  }
  for (std::size_t at = 0; at < whole.size(); ++at) {
    auto damaged = whole;
    damaged[at] = static_cast<char>(damaged[at] ^ 0x10);
    overwrite(file.path(), damaged);
    EXPECT_EQ(code_of(file.path()), ErrorCode::kDataLoss) << "byte " << at;
  }
}

TEST(RecordFile, CompressedFilesAreReadAsTheyWereWritten) {
  const Scratch file;
  const std::vector<std::string> records = {"one", "", std::string(300'000, 'x')};
  for (const auto compression : {Compression::kGzip, Compression::kZlib}) {
    write_records(file.path(), records, compression);
    EXPECT_LT(content_of(file.path()).size(), 10'000U);
    RecordReader reader(file.path(), compression);
    std::vector<std::string> read;
    for (std::string_view record; reader.next(record);) read.emplace_back(record);
    EXPECT_EQ(read, records);
  }
}

TEST(RecordFile, ARecordWithDamagedDataCanBePassedOver) {
  const Scratch file;
  write_records(file.path(), {"first", "second", "third"});
  auto content = content_of(file.path());
  content[16 + 5 + 12] = 'X';
  overwrite(file.path(), content);
  RecordReader reader(file.path());
  std::string_view record;
  ASSERT_TRUE(reader.next(record));
  EXPECT_THROW(reader.next(record), Error);
  ASSERT_TRUE(reader.skip_damage());
  ASSERT_TRUE(reader.next(record));
  EXPECT_EQ(record, "third");
}

TEST(RecordFile, GoesOnWhereItWas) {
  const Scratch file;
  for (const auto compression : {Compression::kNone, Compression::kGzip}) {
    write_records(file.path(), {"first", "second", "third"}, compression);
    std::string_view record;
    RecordReader reader(file.path(), compression);
    reader.next(record);
    RecordReader other(file.path(), compression);
    other.seek(reader.position());
    ASSERT_TRUE(other.next(record));
    EXPECT_EQ(record, "second");
  }
}

// Nothing is taken for what a damaged length claims.
TEST(RecordFile, ALengthThatCannotBeIsDamage) {
  const Scratch file;
  std::string content(8, '\0');
  const std::uint64_t length = std::uint64_t{1} << 60;
  std::memcpy(content.data(), &length, sizeof length);
  const auto sum = masked_crc32c(content.data(), 8);
  content.append(reinterpret_cast<const char*>(&sum), sizeof sum);
  overwrite(file.path(), content + "abc");
  EXPECT_EQ(code_of(file.path()), ErrorCode::kDataLoss);
}

TEST(RecordFile, AMissingFileIsNamed) { EXPECT_EQ(code_of("/nowhere/at.all"), ErrorCode::kNotFound); }

}  // namespace
}  // namespace lockstep::data

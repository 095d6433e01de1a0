#include "lockstep/data/record_file.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <cstdio>
#include <cstdlib>
#include <iterator>

#include "lockstep/base/error.h"

namespace lockstep::data {
namespace {

// A file that is gone with its owner.
class Scratch {
 public:
  Scratch() { close(mkstemp(name_)); }
  ~Scratch() { std::remove(name_); }
  std::string path() const { return name_; }

 private:
  char name_[32] = "/tmp/record_file_XXXXXX";
};

std::vector<std::string> read_all(const std::string& path) {
  RecordReader reader(path);
  std::vector<std::string> records;
  for (std::string record; reader.next(record);) records.push_back(record);
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

std::string content_of(const std::string& path) {
  std::ifstream file(path, std::ios::binary);
  return {std::istreambuf_iterator<char>(file), {}};
}

void overwrite(const std::string& path, const std::string& content) { std::ofstream(path, std::ios::binary) << content; }

TEST(RecordFile, TheChecksumIsTheKnownOne) {
  // crc32c("123456789") is e3069283.
  const std::uint32_t crc = 0xe3069283U;
  EXPECT_EQ(masked_crc32c("123456789", 9), ((crc >> 15) | (crc << 17)) + 0xa282ead8U);
}

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

TEST(RecordFile, AMissingFileIsNamed) { EXPECT_EQ(code_of("/nowhere/at.all"), ErrorCode::kNotFound); }

}  // namespace
}  // namespace lockstep::data

#include "lockstep/data/io/csv.h"

#include <gtest/gtest.h>

#include "lockstep/base/error.h"
#include "tests/support/scratch_folder.h"

namespace lockstep::data {
namespace {

using Fields = std::vector<std::string>;

std::vector<Fields> rows_of(const std::string& content) {
  const lockstep::testing::ScratchFolder folder;
  CsvReader reader(folder.write("t.csv", content), ',');
  std::vector<Fields> rows;
  for (Fields fields; reader.next(fields);) rows.push_back(fields);
  return rows;
}

TEST(Csv, SplitsRows) {
  EXPECT_EQ(rows_of("a,b\n1,2\n"), (std::vector<Fields>{{"a", "b"}, {"1", "2"}}));
  EXPECT_EQ(rows_of("a,b\r\n1,2"), (std::vector<Fields>{{"a", "b"}, {"1", "2"}}));
  EXPECT_EQ(rows_of(",\n\n,,"), (std::vector<Fields>{{"", ""}, {"", "", ""}}));
  EXPECT_EQ(rows_of(""), std::vector<Fields>{});
  EXPECT_EQ(rows_of("\xEF\xBB\xBFx\n"), (std::vector<Fields>{{"x"}}));
}

TEST(Csv, QuotesHoldSeparatorsEndsOfLinesAndQuotes) {
  EXPECT_EQ(rows_of("\"a,b\",\"c\nd\",\"say \"\"hi\"\"\"\nx,,\"\"\n"),
            (std::vector<Fields>{{"a,b", "c\nd", "say \"hi\""}, {"x", "", ""}}));
}

TEST(Csv, WhatCannotBeSplitIsDamageWithItsLine) {
  for (const char* content : {"a\n\"b", "a\n\"b\"c,d\n"}) {
    try {
      rows_of(content);
      ADD_FAILURE() << content;
    } catch (const Error& error) {
      EXPECT_EQ(error.code(), ErrorCode::kDataLoss);
      EXPECT_NE(std::string(error.what()).find("line 2"), std::string::npos) << error.what();
    }
  }
}

}  // namespace
}  // namespace lockstep::data

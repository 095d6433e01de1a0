#include "lockstep/data/io/csv.h"

#include <gtest/gtest.h>
#include <unistd.h>

#include <cstdio>
#include <cstdlib>
#include <fstream>

#include "lockstep/base/error.h"

namespace lockstep::data {
namespace {

using Fields = std::vector<std::string>;

std::vector<Fields> rows_of(const std::string& content) {
  char name[] = "/tmp/csv_XXXXXX";
  close(mkstemp(name));
  std::ofstream(name, std::ios::binary) << content;
  std::vector<Fields> rows;
  try {
    CsvReader reader(name, ',');
    for (Fields fields; reader.next(fields);) rows.push_back(fields);
  } catch (...) {
    std::remove(name);
    throw;
  }
  std::remove(name);
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

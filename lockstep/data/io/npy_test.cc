#include "lockstep/data/io/npy.h"

#include <cstdint>
#include <limits>
#include <string>
#include <vector>

#include "tests/support/testing.h"
#include "tests/support/zip_bytes.h"

namespace lockstep::data::internal {
namespace {

using lockstep::testing::code_of;
using lockstep::testing::little_endian;
using lockstep::testing::ThrowsCode;

std::string file_of(const std::string& text, int version = 1) {
  return "\x93NUMPY" + little_endian(static_cast<std::uint64_t>(version), 2) +
         little_endian(text.size(), version == 1 ? 2 : 4) + text;
}

std::string header_of(const std::string& type, const std::string& order, const std::string& shape) {
  return "{'descr': '" + type + "', 'fortran_order': " + order + ", 'shape': " + shape + ", }";
}

NpyHeader parse(const std::string& bytes) { return parse_npy_header(bytes, "the file 'a.npy'"); }

TEST(NpyHeader, IsReadInEveryVersion) {
  for (const int version : {1, 2, 3}) {
    const auto bytes = file_of(header_of("<f4", "False", "(3, 4)") + "      \n", version);
    const auto header = parse(bytes + "values");
    EXPECT_EQ(header.type, "f4");
    EXPECT_EQ(header.value_bytes, 4U);
    EXPECT_FALSE(header.is_fortran_order);
    EXPECT_EQ(header.sizes, (std::vector<std::int64_t>{3, 4}));
    EXPECT_EQ(header.header_bytes, bytes.size());
    EXPECT_EQ(header.data_bytes, 48U);
    EXPECT_EQ(npy_header_bytes(bytes.substr(0, 12), "it"), bytes.size());
  }
}

TEST(NpyHeader, TakesShapesAsPythonWritesThem) {
  const auto sizes = [](const std::string& shape) { return parse(file_of(header_of("|u1", "True", shape))).sizes; };
  EXPECT_EQ(sizes("()"), (std::vector<std::int64_t>{}));
  EXPECT_EQ(sizes("(5,)"), (std::vector<std::int64_t>{5}));
  EXPECT_EQ(sizes("(5L, 6L)"), (std::vector<std::int64_t>{5, 6}));
  EXPECT_EQ(parse(file_of(header_of("<f8", "False", "()"))).data_bytes, 8U);
  EXPECT_EQ(parse(file_of(header_of("<f8", "False", "(0, 1000)"))).data_bytes, 0U);
}

TEST(NpyHeader, TakesKeysInAnyOrderAndEitherQuote) {
  const auto header = parse(file_of("{\"shape\":(2,),\"fortran_order\":True,\"descr\":\"=c16\"}"));
  EXPECT_TRUE(header.is_fortran_order);
  EXPECT_EQ(header.type, "c16");
  EXPECT_EQ(header.data_bytes, 32U);
}

TEST(NpyHeader, WhatIsWrittenIsRead) {
  for (const auto& type : npy_types())
    for (const auto& sizes : std::vector<std::vector<std::int64_t>>{{}, {7}, {1, 2, 3}, {0, 4}}) {
      const auto bytes = make_npy_header(type, sizes);
      EXPECT_EQ(bytes.size() % 64, 0U);
      EXPECT_EQ(bytes.back(), '\n');
      const auto header = parse(bytes);
      EXPECT_EQ(header.type, type);
      EXPECT_EQ(header.sizes, sizes);
      EXPECT_EQ(header.header_bytes, bytes.size());
      EXPECT_FALSE(header.is_fortran_order);
    }
  // As numpy.save() writes it.
  EXPECT_EQ(make_npy_header("f4", {3}), std::string("\x93NUMPY\1\0v\0", 10) +
                                            "{'descr': '<f4', 'fortran_order': False, 'shape': (3,), }" + std::string(60, ' ') +
                                            "\n");
}

TEST(NpyHeader, RefusesOtherTypesAndOrders) {
  const auto refuses = [](const std::string& type, const std::string& word) {
    EXPECT_THAT([&] { parse(file_of(header_of(type, "False", "(3,)"))); },
                ThrowsCode(ErrorCode::kUnimplemented, "a.npy", word));
  };
  refuses(">f4", "astype('=f4')");
  refuses("<U5", "'<U5'");
  refuses("|O", "f4");
  refuses("<u2", "u1");
  refuses("", "''");
  EXPECT_THAT([] { parse(file_of("{'descr': [('x', '<f4')], 'fortran_order': False, 'shape': (3,), }")); },
              ThrowsCode(ErrorCode::kUnimplemented, "structure"));
  EXPECT_THAT([] { parse(file_of(header_of("<f4", "False", "(3,)"), 4)); }, ThrowsCode(ErrorCode::kUnimplemented, "version 4"));
}

TEST(NpyHeader, DamageIsDataLoss) {
  const auto good = file_of(header_of("<f4", "False", "(3, 4)") + "\n");
  for (std::size_t cut = 0; cut < good.size(); ++cut)
    EXPECT_EQ(code_of([&] { parse(good.substr(0, cut)); }), ErrorCode::kDataLoss) << cut;
  for (const std::string text :
       {"", "{", "{}", "{'descr': '<f4', 'shape': (3,), }", "{'descr': '<f4', 'fortran_order': 0, 'shape': (3,), }",
        "{'descr': '<f4', 'fortran_order': False, 'shape': (-3,), }", "{'descr': '<f4', 'fortran_order': False, 'shape': 3, }",
        "{'descr': '<f4', 'fortran_order': False, 'shape': (3 4), }", "{'descr': '<f4', 'fortran_order': False, 'shape': (3,",
        "{'descr': '<f4', 'descr': '<f4', 'fortran_order': False, 'shape': (3,)}",
        "{'descr': '<f4', 'fortran_order': False, 'shape': (3,), 'more': 1}",
        "{'descr': '<f4', 'fortran_order': False, 'shape': (3,), } and more"})
    EXPECT_EQ(code_of([&] { parse(file_of(text)); }), ErrorCode::kDataLoss) << text;
  EXPECT_EQ(code_of([&] { parse("\x89PNG and so on"); }), ErrorCode::kDataLoss);
  // A header of 4 GiB.
  EXPECT_EQ(code_of([&] { parse(std::string("\x93NUMPY\2\0\xff\xff\xff\xff", 12)); }), ErrorCode::kDataLoss);
  std::string many = "(";
  for (int i = 0; i < 65; ++i) many += "1, ";
  EXPECT_EQ(code_of([&] { parse(file_of(header_of("<f4", "False", many + ")"))); }), ErrorCode::kDataLoss);
}

TEST(NpyHeader, SizesThatOverflowAreDataLoss) {
  const auto code = [](const std::string& shape) { return code_of([&] { parse(file_of(header_of("<f8", "False", shape))); }); };
  EXPECT_EQ(code("(4294967296, 4294967296)"), ErrorCode::kDataLoss);
  EXPECT_EQ(code("(1152921504606846976,)"), ErrorCode::kDataLoss);
  EXPECT_EQ(code("(99999999999999999999999,)"), ErrorCode::kDataLoss);
  EXPECT_EQ(code("(0, 4294967296, 4294967296)"), ErrorCode::kDataLoss);
}

TEST(NpyHeader, AHugeSizeIsComparedWithWhatIsThere) {
  const auto header = parse(file_of(header_of("|u1", "False", "(1152921504606846976,)")));
  EXPECT_EQ(header.data_bytes, std::size_t{1} << 60);
  EXPECT_THAT([&] { check_npy_size(header, 12, "the file 'a.npy'"); },
              ThrowsCode(ErrorCode::kDataLoss, "a.npy", "1152921504606846976", "12"));
  check_npy_size(header, std::uint64_t{1} << 60, "it");
}

TEST(NpyHeader, FlippedBitsNeverDoMoreThanThrow) {
  const auto good = file_of(header_of("<f4", "False", "(3, 4)") + "   \n");
  int damaged = 0;
  for (std::size_t i = 0; i < good.size(); ++i)
    for (int bit = 0; bit < 8; ++bit) {
      auto bytes = good;
      bytes[i] = static_cast<char>(bytes[i] ^ (1 << bit));
      if (code_of([&] { parse(bytes); })) ++damaged;
    }
  EXPECT_GT(damaged, 400);
}

}  // namespace
}  // namespace lockstep::data::internal

#include "lockstep/data/io/png.h"

#include <zlib.h>

#include <cstdint>
#include <string>
#include <vector>

#include "tests/support/testing.h"

namespace lockstep::data::internal {
namespace {

using lockstep::testing::code_of;
using lockstep::testing::ThrowsCode;
using Bytes = std::vector<std::uint8_t>;

std::string four_bytes(std::uint64_t value) {
  return {static_cast<char>(value >> 24), static_cast<char>(value >> 16), static_cast<char>(value >> 8),
          static_cast<char>(value)};
}

std::string chunk(const std::string& name, const std::string& content) {
  const auto named = name + content;
  const auto sum = crc32(0, reinterpret_cast<const Bytef*>(named.data()), static_cast<uInt>(named.size()));
  return four_bytes(content.size()) + named + four_bytes(sum);
}

struct Kind {
  int bits = 8;
  int colours = 0;        // 0 grey, 2 colour, 3 palette, 4 grey with opacity, 6 colour with opacity
  std::string more = "";  // chunks before the pixels
};

// An image of one row.
std::string png_of(std::uint32_t width, const Kind& kind, const std::string& row) {
  const auto raw = std::string(1, '\0') + row;
  std::string packed(compressBound(raw.size()), '\0');
  auto bytes = static_cast<uLongf>(packed.size());
  compress(reinterpret_cast<Bytef*>(packed.data()), &bytes, reinterpret_cast<const Bytef*>(raw.data()), raw.size());
  packed.resize(bytes);
  const auto header =
      four_bytes(width) + four_bytes(1) + static_cast<char>(kind.bits) + static_cast<char>(kind.colours) + std::string(3, '\0');
  return "\x89PNG\r\n\x1a\n" + chunk("IHDR", header) + kind.more + chunk("IDAT", packed) + chunk("IEND", "");
}

TEST(Png, WhatIsWrittenIsRead) {
  for (const int channels : {1, 3, 4}) {
    Pixels image{5, 3, channels, {}};
    for (int i = 0; i < 15 * channels; ++i) image.bytes.push_back(static_cast<std::uint8_t>(4 * i));
    const auto read = read_png(write_png(image), 0);
    EXPECT_EQ(read.width, 5);
    EXPECT_EQ(read.height, 3);
    EXPECT_EQ(read.channels, channels);
    EXPECT_EQ(read.bytes, image.bytes);
  }
}

TEST(Png, GivesTheChannelsThatAreWanted) {
  const auto colour = write_png({1, 1, 3, {200, 100, 50}});
  EXPECT_EQ(read_png(colour, 3).bytes, (Bytes{200, 100, 50}));
  EXPECT_EQ(read_png(colour, 1).bytes, (Bytes{124}));  // 0.299 * 200 + 0.587 * 100 + 0.114 * 50
  const auto grey = write_png({2, 1, 1, {7, 9}});
  EXPECT_EQ(read_png(grey, 3).bytes, (Bytes{7, 7, 7, 9, 9, 9}));
  EXPECT_EQ(read_png(grey, 1).bytes, (Bytes{7, 9}));
  const auto clear = write_png({2, 1, 4, {200, 100, 50, 0, 1, 2, 3, 128}});
  EXPECT_EQ(read_png(clear, 3).bytes, (Bytes{200, 100, 50, 1, 2, 3}));
  EXPECT_EQ(read_png(clear, 1).bytes, (Bytes{124, 2}));
}

TEST(Png, ReadsEveryKind) {
  const auto grey_with_opacity = png_of(2, {8, 4}, "\x0a\x80\x14\xff");
  EXPECT_EQ(read_png(grey_with_opacity, 0).bytes, (Bytes{10, 10, 10, 128, 20, 20, 20, 255}));
  EXPECT_EQ(read_png(grey_with_opacity, 1).bytes, (Bytes{10, 20}));
  EXPECT_EQ(read_png(grey_with_opacity, 3).bytes, (Bytes{10, 10, 10, 20, 20, 20}));
  EXPECT_EQ(read_png(png_of(2, {16, 0}, std::string("\x80\x80\0\0", 4)), 0).bytes, (Bytes{128, 0}));
  EXPECT_EQ(read_png(png_of(8, {1, 0}, "\xa5"), 0).bytes, (Bytes{255, 0, 255, 0, 0, 255, 0, 255}));
  const auto palette = png_of(2, {8, 3, chunk("PLTE", "abcdef")}, std::string("\1\0", 2));
  EXPECT_EQ(read_png(palette, 0).bytes, (Bytes{'d', 'e', 'f', 'a', 'b', 'c'}));
  const auto clear = png_of(2, {8, 3, chunk("PLTE", "abcdef") + chunk("tRNS", "\x40")}, std::string("\1\0", 2));
  EXPECT_EQ(read_png(clear, 0).bytes, (Bytes{'d', 'e', 'f', 255, 'a', 'b', 'c', 64}));
}

TEST(Png, DamageIsDataLossInTheLibrarysWords) {
  EXPECT_THAT([] { read_png("", 0); }, ThrowsCode(ErrorCode::kDataLoss, "libpng"));
  EXPECT_THAT([] { read_png("no image at all", 0); }, ThrowsCode(ErrorCode::kDataLoss, "Not a PNG file"));
  Pixels image{64, 64, 3, {}};
  for (int i = 0; i < 64 * 64 * 3; ++i) image.bytes.push_back(static_cast<std::uint8_t>(i * i));
  const auto good = write_png(image);
  const auto end = good.find("IEND");
  for (std::size_t cut = 0; cut + 20 < end; cut += 31)
    EXPECT_EQ(code_of([&] { read_png(good.substr(0, cut), 3); }), ErrorCode::kDataLoss) << cut;
}

TEST(Png, FlippedBytesNeverDoMoreThanThrow) {
  const auto good = png_of(6, {8, 3, chunk("PLTE", "abcdef") + chunk("tRNS", "\x40")}, std::string("\1\0\1\0\1\1", 6));
  for (std::size_t i = 0; i < good.size(); ++i) {
    auto bytes = good;
    bytes[i] = static_cast<char>(bytes[i] ^ 0xa5);
    const auto code = code_of([&] { read_png(bytes, 3); });
    EXPECT_TRUE(!code || code == ErrorCode::kDataLoss) << i;
  }
}

TEST(Png, AHugeImageIsRefusedBeforeMemoryIsTaken) {
  auto header = four_bytes(999'999) + four_bytes(999'999) + std::string("\x08\2\0\0\0", 5);
  const auto bytes = "\x89PNG\r\n\x1a\n" + chunk("IHDR", header) + chunk("IDAT", "x") + chunk("IEND", "");
  EXPECT_THAT([&] { read_png(bytes, 0); }, ThrowsCode(ErrorCode::kDataLoss, "999999 x 999999", "268435456"));
}

TEST(Png, RefusesWrongArguments) {
  const auto good = write_png({1, 1, 1, {1}});
  for (const int channels : {-1, 2, 4}) EXPECT_EQ(code_of([&] { read_png(good, channels); }), ErrorCode::kInvalidArgument);
  EXPECT_EQ(code_of([] { write_png({1, 1, 2, {1, 2}}); }), ErrorCode::kInvalidArgument);
}

}  // namespace
}  // namespace lockstep::data::internal

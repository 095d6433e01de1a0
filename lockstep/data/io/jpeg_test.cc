#include "lockstep/data/io/jpeg.h"

#include <cstdint>
#include <cstdlib>
#include <string>
#include <vector>

#include "tests/support/testing.h"

namespace lockstep::data::internal {
namespace {

using lockstep::testing::code_of;
using lockstep::testing::LogCapture;
using lockstep::testing::ThrowsCode;

Pixels filled(int width, int height, const std::vector<std::uint8_t>& pixel) {
  Pixels image{width, height, static_cast<int>(pixel.size()), {}};
  for (int i = 0; i < width * height; ++i) image.bytes.insert(image.bytes.end(), pixel.begin(), pixel.end());
  return image;
}

// All pixels are near this one: JPEG does not keep values exactly.
void expect_near(const Pixels& image, const std::vector<int>& pixel) {
  ASSERT_EQ(image.channels, static_cast<int>(pixel.size()));
  ASSERT_EQ(image.bytes.size(), static_cast<std::size_t>(image.width * image.height * image.channels));
  for (std::size_t i = 0; i < image.bytes.size(); ++i) ASSERT_LE(std::abs(image.bytes[i] - pixel[i % pixel.size()]), 2) << i;
}

std::string two_bytes(int value) { return {static_cast<char>(value >> 8), static_cast<char>(value)}; }

std::string segment(char marker, const std::string& content) {
  return '\xff' + std::string(1, marker) + two_bytes(static_cast<int>(content.size()) + 2) + content;
}

// 8 x 8 pixels of one colour for print: values of cyan 200, magenta 100, yellow 50 and black 255 as they stand in the file.
std::string print_image(bool has_adobe_marker) {
  std::string jpeg = "\xff\xd8";
  if (has_adobe_marker) jpeg += segment('\xee', std::string("Adobe\0\x64\0\0\0\0\0", 12));
  jpeg += segment('\xdb', std::string(1, '\0') + std::string(64, '\1'));
  std::string frame = '\x08' + two_bytes(8) + two_bytes(8) + '\4', scan = "\4";
  for (char c = 1; c <= 4; ++c) {
    frame += std::string{c, '\x11', '\0'};
    scan += std::string{c, '\0'};
  }
  jpeg += segment('\xc0', frame);
  // Codes 00 and 01: numbers of 10 and of 8 bits follow. Code 0: the rest of a block is 0.
  jpeg += segment('\xc4', std::string("\0\0\2", 3) + std::string(14, '\0') + "\x0a\x08");
  jpeg += segment('\xc4', std::string("\x10\1", 2) + std::string(15, '\0') + std::string(1, '\0'));
  jpeg += segment('\xda', scan + std::string("\0\x3f\0", 3));
  const std::string bits =
      "0010010000000"
      "01000111110"
      "0001100011110"
      "0011111110000"
      "111111";
  for (std::size_t i = 0; i + 8 <= bits.size(); i += 8) jpeg += static_cast<char>(std::stoi(bits.substr(i, 8), nullptr, 2));
  return jpeg + "\xff\xd9";
}

TEST(Jpeg, WhatIsWrittenIsRead) {
  const auto colour = write_jpeg(filled(33, 17, {200, 100, 50}), 95);
  expect_near(read_jpeg(colour, 0), {200, 100, 50});
  expect_near(read_jpeg(colour, 3), {200, 100, 50});
  expect_near(read_jpeg(colour, 1), {124});  // 0.299 * 200 + 0.587 * 100 + 0.114 * 50
  const auto grey = write_jpeg(filled(7, 9, {77}), 95);
  expect_near(read_jpeg(grey, 0), {77});
  expect_near(read_jpeg(grey, 3), {77, 77, 77});
  EXPECT_EQ(read_jpeg(grey, 0).width, 7);
  EXPECT_EQ(read_jpeg(grey, 0).height, 9);
}

TEST(Jpeg, ColoursForPrintBecomeRedGreenAndBlue) {
  expect_near(read_jpeg(print_image(true), 0), {200, 100, 50});
  expect_near(read_jpeg(print_image(true), 1), {124});
  expect_near(read_jpeg(print_image(false), 3), {0, 0, 0});
}

TEST(Jpeg, DamageIsDataLossInTheLibrarysWords) {
  const auto good = write_jpeg(filled(64, 64, {200, 100, 50}), 95);
  EXPECT_THAT([] { read_jpeg("", 0); }, ThrowsCode(ErrorCode::kDataLoss));
  EXPECT_THAT([] { read_jpeg("no image at all", 0); }, ThrowsCode(ErrorCode::kDataLoss, "libjpeg-turbo", "Not a JPEG file"));
  for (std::size_t cut = 0; cut < good.size() - 1; cut += 7)
    EXPECT_EQ(code_of([&] { read_jpeg(good.substr(0, cut), 3); }), ErrorCode::kDataLoss) << cut;
  EXPECT_THAT([&] { read_jpeg(good.substr(0, good.size() - 2), 0); }, ThrowsCode(ErrorCode::kDataLoss, "Premature end"));
}

TEST(Jpeg, FaultsThatShowInNoPixelAreOnlyTold) {
  const LogCapture log;
  auto bytes = write_jpeg(filled(16, 16, {200, 100, 50}), 95);
  bytes.insert(bytes.size() - 2, 100, 'a');
  expect_near(read_jpeg(bytes, 0), {200, 100, 50});
  expect_near(read_jpeg(bytes, 0), {200, 100, 50});
  ASSERT_EQ(log.warnings().size(), 1U);
  EXPECT_THAT(log.warnings()[0], ::testing::HasSubstr("extraneous bytes"));
  expect_near(read_jpeg(write_jpeg(filled(16, 16, {9}), 95) + "after the end", 0), {9});
}

TEST(Jpeg, FlippedBytesNeverDoMoreThanThrow) {
  const LogCapture log;
  const auto good = write_jpeg(filled(24, 24, {200, 100, 50}), 90);
  for (std::size_t i = 0; i < good.size(); ++i) {
    auto bytes = good;
    bytes[i] = static_cast<char>(bytes[i] ^ 0xa5);
    const auto code = code_of([&] { read_jpeg(bytes, 3); });
    EXPECT_TRUE(!code || code == ErrorCode::kDataLoss) << i;
  }
}

TEST(Jpeg, AHugeImageIsRefusedBeforeMemoryIsTaken) {
  auto bytes = write_jpeg(filled(8, 8, {1, 2, 3}), 95);
  const auto frame = bytes.find("\xff\xc0");
  ASSERT_NE(frame, std::string::npos);
  bytes.replace(frame + 5, 4, two_bytes(65500) + two_bytes(65500));
  EXPECT_THAT([&] { read_jpeg(bytes, 0); }, ThrowsCode(ErrorCode::kDataLoss, "65500 x 65500", "268435456"));
}

TEST(Jpeg, RefusesWrongArguments) {
  const auto good = write_jpeg(filled(8, 8, {1}), 95);
  for (const int channels : {-1, 2, 4}) EXPECT_EQ(code_of([&] { read_jpeg(good, channels); }), ErrorCode::kInvalidArgument);
  EXPECT_EQ(code_of([] { write_jpeg(filled(8, 8, {1, 2, 3, 4}), 95); }), ErrorCode::kInvalidArgument);
  for (const int quality : {0, 101})
    EXPECT_EQ(code_of([&] { write_jpeg(filled(8, 8, {1}), quality); }), ErrorCode::kInvalidArgument);
  EXPECT_THAT([] { write_jpeg(filled(70'000, 1, {1}), 95); },
              ThrowsCode(ErrorCode::kInvalidArgument, "70000 x 1", "libjpeg-turbo"));
}

}  // namespace
}  // namespace lockstep::data::internal

#include "lockstep/data/images.h"

#include <ATen/ATen.h>

#include <string>

#include "tests/support/data_testing.h"

namespace lockstep::data {
namespace {

using lockstep::testing::code_of;
using lockstep::testing::ThrowsCode;

at::Tensor some_image(std::int64_t channels) { return at::randint(0, 256, {channels, 5, 7}, at::kByte); }

TEST(Images, PngKeepsEveryValue) {
  for (const auto channels : {1, 3, 4}) {
    const auto image = some_image(channels);
    const auto bytes = encode_png(image);
    EXPECT_TRUE(decode_png(bytes).equal(image));
    EXPECT_TRUE(decode_image(bytes).equal(image));
  }
  const auto colour = some_image(3);
  EXPECT_TRUE(decode_png(encode_png(colour.transpose(1, 2))).equal(colour.transpose(1, 2)));
  EXPECT_TRUE(decode_image(encode_png(colour), 3).equal(colour));
  EXPECT_EQ(decode_image(encode_png(colour), 1).sizes(), (at::IntArrayRef{1, 5, 7}));
}

TEST(Images, JpegKeepsAboutEveryValue) {
  // A ramp from left to right in red, one from top to bottom in blue.
  auto image = at::zeros({3, 32, 48}, at::kByte);
  image[0] = at::arange(48, at::kByte).mul(4).expand({32, 48});
  image[2] = at::arange(32, at::kByte).mul(6).unsqueeze(1).expand({32, 48});
  const auto bytes = encode_jpeg(image);
  const auto read = decode_jpeg(bytes);
  ASSERT_EQ(read.sizes(), image.sizes());
  EXPECT_EQ(read.scalar_type(), at::kByte);
  EXPECT_LE((read.to(at::kInt) - image.to(at::kInt)).abs().max().item<int>(), 16);
  EXPECT_TRUE(decode_image(bytes).equal(read));
  EXPECT_EQ(decode_jpeg(bytes, 1).sizes(), (at::IntArrayRef{1, 32, 48}));
  EXPECT_LT(encode_jpeg(image, 10).size(), bytes.size());
  EXPECT_EQ(decode_image(encode_jpeg(image.slice(0, 0, 1)), 3).sizes(), (at::IntArrayRef{3, 32, 48}));
}

TEST(Images, BytesOfOtherFormatsAreDataLoss) {
  EXPECT_THAT([] { decode_image(""); }, ThrowsCode(ErrorCode::kDataLoss, "no bytes"));
  EXPECT_THAT([] { decode_image("GIF89a and more"); }, ThrowsCode(ErrorCode::kDataLoss, "47 49 46 38", "neither"));
  EXPECT_EQ(code_of([] { decode_image("\xff\xd8\xff and more"); }), ErrorCode::kDataLoss);
  EXPECT_EQ(code_of([] { decode_image("\x89PNG\r\n\x1a\n and more"); }), ErrorCode::kDataLoss);
}

TEST(Images, RefusesTensorsThatAreNoImages) {
  for (const auto& tensor : {at::Tensor(), at::zeros({3, 4, 4}), at::zeros({4, 4}, at::kByte), at::zeros({2, 4, 4}, at::kByte),
                             at::zeros({5, 4, 4}, at::kByte), at::zeros({3, 0, 4}, at::kByte)}) {
    EXPECT_EQ(code_of([&] { encode_png(tensor); }), ErrorCode::kInvalidArgument);
    EXPECT_EQ(code_of([&] { encode_jpeg(tensor); }), ErrorCode::kInvalidArgument);
  }
  EXPECT_THAT(
      [] {
        encode_png(at::zeros({3, 4, 4}));
      },
      ThrowsCode(ErrorCode::kInvalidArgument, "encode_png", "Float", "[3, 4, 4]"));
  EXPECT_EQ(code_of([] { encode_jpeg(some_image(3), 0); }), ErrorCode::kInvalidArgument);
  EXPECT_EQ(code_of([] { decode_image(encode_png(some_image(3)), 2); }), ErrorCode::kInvalidArgument);
}

}  // namespace
}  // namespace lockstep::data

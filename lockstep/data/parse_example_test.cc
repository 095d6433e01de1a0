#include "lockstep/data/parse_example.h"

#include <gmock/gmock.h>

#include "tests/support/data_testing.h"

namespace lockstep::data {
namespace {

using ::testing::HasSubstr;
using testing::ints;
using testing::Ints;
using testing::text_of;

using Floats = std::vector<float>;
using Texts = std::vector<std::string>;

std::string example(const std::vector<std::pair<std::string, FeatureValues>>& features) { return serialize_example(features); }

Bytes batch_of(std::vector<std::string> examples) {
  Bytes bytes{std::move(examples), {}};
  bytes.sizes = {static_cast<std::int64_t>(bytes.values.size())};
  return bytes;
}

TEST(ParseExample, OneAndABatchHaveTheSameValues) {
  const auto first = example({{"x", Floats{1, 2}}, {"y", Ints{3}}, {"name", Texts{"a"}}});
  const auto second = example({{"y", Ints{4}}, {"other", Ints{9}}, {"x", Floats{5, 6}}, {"name", Texts{"bc"}}});
  const ExampleParser parse({Feature::float32("x", {2}), Feature::int64("y"), Feature::bytes("name")});
  const auto one = parse(Bytes{{first}, {}});
  EXPECT_EQ(one.at("x").sizes(), (at::IntArrayRef{2}));
  EXPECT_EQ(one.at("y").dim(), 0);
  EXPECT_EQ(one.text(2), "a");
  const auto both = parse(batch_of({first, second}));
  EXPECT_EQ(ints(both.at("x")), (Ints{1, 2, 5, 6}));
  EXPECT_EQ(both.at("x").sizes(), (at::IntArrayRef{2, 2}));
  EXPECT_EQ(ints(both.at("y")), (Ints{3, 4}));
  EXPECT_EQ(both.components()[2].bytes(), (Bytes{{"a", "bc"}, {2}}));
}

TEST(ParseExample, RawBytesBecomeATensor) {
  const ExampleParser parse({Feature::raw("image", at::kByte, {1, 2})});
  const auto parsed = parse(batch_of({example({{"image", Texts{"\x01\x02"}}}), example({{"image", Texts{"\x03\x04"}}})}));
  EXPECT_EQ(parsed[0].sizes(), (at::IntArrayRef{2, 1, 2}));
  EXPECT_EQ(ints(parsed[0]), (Ints{1, 2, 3, 4}));
  EXPECT_THAT(text_of([&] { parse(batch_of({example({{"image", Texts{"abc"}}})})); }), HasSubstr("3 bytes"));
}

TEST(ParseExample, SequencesAreFilledUp) {
  const ExampleParser parse({Feature::int64("ids").sequence().or_else(-1), Feature::bytes("words").sequence()});
  const auto parsed =
      parse(batch_of({example({{"ids", Ints{1, 2, 3}}}), example({{"ids", Ints{4}}, {"words", Texts{"a", "b"}}})}));
  EXPECT_EQ(ints(parsed.at("ids")), (Ints{1, 2, 3, 4, -1, -1}));
  EXPECT_EQ(parsed.components()[1].bytes(), (Bytes{{"", "", "a", "b"}, {2, 2}}));
}

TEST(ParseExample, WhatIsWrongIsNamed) {
  const auto good = example({{"y", Ints{1}}});
  const ExampleParser parse({Feature::int64("y")});
  EXPECT_THAT(text_of([&] { parse(batch_of({good, "garbage"})); }), HasSubstr("row 1"));
  EXPECT_THAT(text_of([&] { parse(batch_of({good, example({})})); }), HasSubstr("'y' of row 1 is missing"));
  EXPECT_THAT(text_of([&] {
                parse(batch_of({example({{"y", Floats{1}}})}));
              }),
              HasSubstr("is float32, and int64 was asked for"));
  EXPECT_THAT(text_of([&] { parse(batch_of({example({{"y", Ints{1, 2}}})})); }), HasSubstr("has 2 values"));
  EXPECT_EQ(ints(ExampleParser({Feature::int64("y").or_else(7)})(batch_of({example({})}))[0]), (Ints{7}));
  EXPECT_EQ(testing::code_of([] { ExampleParser({Feature::int64("y"), Feature::int64("y")}); }), ErrorCode::kInvalidArgument);
}

TEST(DecodeRaw, StringsBecomeRows) {
  EXPECT_EQ(ints(decode_raw(batch_of({"\x01\x02", "\x03\x04"}), at::kByte, {2})), (Ints{1, 2, 3, 4}));
  EXPECT_EQ(testing::code_of([] { decode_raw(batch_of({"abc"}), at::kByte, {2}); }), ErrorCode::kInvalidArgument);
  constexpr auto kHuge = std::int64_t{1} << 40;
  EXPECT_EQ(testing::code_of([] { ExampleParser({Feature::int64("y", {kHuge, kHuge})}); }), ErrorCode::kInvalidArgument);
  EXPECT_EQ(testing::code_of([] { decode_raw(batch_of({"abc"}), at::kByte, {0, kHuge, kHuge}); }), ErrorCode::kInvalidArgument);
  EXPECT_EQ(testing::code_of([] { decode_raw(batch_of({"abc"}), at::kByte, {-1}); }), ErrorCode::kInvalidArgument);
}

}  // namespace
}  // namespace lockstep::data

#include "lockstep/checkpoint/safetensors.h"

#include <cmath>
#include <limits>

#include "lockstep/checkpoint/manifest.h"
#include "tests/support/testing.h"

namespace lockstep {
namespace {

using ::testing::ElementsAre;
using testing::ThrowsCode;

std::string file_of(const std::string& header, std::size_t data_bytes) {
  std::string bytes(8, '\0');
  for (std::size_t i = 0; i < 8; ++i) bytes[i] = static_cast<char>(header.size() >> (8 * i));
  return bytes + header + std::string(data_bytes, 'x');
}

SafetensorsHeader parse(const std::string& header, std::size_t data_bytes) {
  return parse_safetensors(file_of(header, data_bytes), "the file 'x'");
}

TEST(Safetensors, ReadsWhatPythonWrites) {
  const auto header =
      parse(R"({"__metadata__":{"format":"pt"},"conv1.weight":{"dtype":"F32","shape":[2,3],"data_offsets":[8,32]},)"
            R"("n":{"dtype":"I64","shape":[],"data_offsets":[0,8]},"none":{"dtype":"F16","shape":[0,7],)"
            R"("data_offsets":[32,32]}}   )",
            32);
  ASSERT_EQ(header.tensors.size(), 3U);
  EXPECT_EQ(header.tensors[0].name, "n");
  EXPECT_TRUE(header.tensors[0].shape.empty());
  EXPECT_EQ(header.tensors[1].name, "conv1.weight");
  EXPECT_THAT(header.tensors[1].shape, ElementsAre(2, 3));
  EXPECT_THAT(header.tensors[2].shape, ElementsAre(0, 7));
  EXPECT_EQ(header.metadata.at("format"), "pt");
}

// What Python's safetensors 0.8.0 made of conv1.weight = [[0, 1, 2], [3, 4, 5]] (float32), flag = [true, false, true], n = 7
// (int64), h = [1, 1] (float16) and none, of shape [0, 4] (float64).
TEST(Safetensors, ReadsAFileOfPythonsPackage) {
  constexpr const char* kHeader =
      R"({"__metadata__":{"format":"pt"},"n":{"dtype":"I64","shape":[],"data_offsets":[0,8]},"none":{"dtype":"F64","shape":[0,4],)"
      R"("data_offsets":[8,8]},"conv1.weight":{"dtype":"F32","shape":[2,3],"data_offsets":[8,32]},"h":{"dtype":"F16","shape":[2],)"
      R"("data_offsets":[32,36]},"flag":{"dtype":"BOOL","shape":[3],"data_offsets":[36,39]}}     )";
  const auto header = parse(kHeader, 39);
  ASSERT_EQ(header.header_bytes, 8U + 0x148U);
  std::vector<std::string> names;
  for (const auto& entry : header.tensors) names.push_back(entry.name);
  EXPECT_THAT(names, ElementsAre("n", "none", "conv1.weight", "h", "flag"));
}

TEST(Safetensors, ReadsWhatItWrites) {
  std::vector<SafetensorsEntry> tensors{{"a \"quoted\" name", "F64", {3}}, {"b", "BF16", {2, 2}}, {"c", "BOOL", {}}};
  const auto header = make_safetensors_header(tensors, {{"step", "7"}});
  EXPECT_EQ(header.size() % 64, 0U);
  const auto again = parse_safetensors(header + std::string(24 + 8 + 1, '\0'), "again");
  ASSERT_EQ(again.tensors.size(), 3U);
  EXPECT_EQ(again.tensors[0].name, "a \"quoted\" name");
  EXPECT_EQ(again.tensors[2].begin, 32U);
  EXPECT_EQ(again.header_bytes, header.size());
  EXPECT_EQ(again.metadata.at("step"), "7");
  std::vector<SafetensorsEntry> none;
  EXPECT_TRUE(parse_safetensors(make_safetensors_header(none), "empty").tensors.empty());
}

TEST(Safetensors, RefusesToWriteWhatCannotBeRead) {
  std::vector<SafetensorsEntry> twice{{"a", "F32", {1}}, {"a", "F32", {1}}};
  EXPECT_THAT([&] { make_safetensors_header(twice); }, ThrowsCode(ErrorCode::kInvalidArgument, "two tensors named 'a'"));
  std::vector<SafetensorsEntry> odd{{"\xff", "F32", {1}}};
  EXPECT_THAT([&] { make_safetensors_header(odd); }, ThrowsCode(ErrorCode::kInvalidArgument, "UTF-8"));
  std::vector<SafetensorsEntry> type{{"z", "C64", {1}}};
  EXPECT_THAT([&] { make_safetensors_header(type); }, ThrowsCode(ErrorCode::kInvalidArgument, "'z'", "C64"));
}

TEST(Safetensors, SaysWhatIsWrongWithAFile) {
  const auto damaged = [](const auto&... words) { return ThrowsCode(ErrorCode::kDataLoss, "the file 'x'", words...); };
  const std::string good = R"({"a":{"dtype":"F32","shape":[2],"data_offsets":[0,8]}})";
  ASSERT_EQ(parse(good, 8).tensors.size(), 1U);
  const auto whole = file_of(good, 8);
  for (std::size_t bytes = 0; bytes < whole.size(); ++bytes)
    EXPECT_THAT([&] { parse_safetensors(whole.substr(0, bytes), "the file 'x'"); }, damaged()) << bytes;
  EXPECT_THAT([&] { parse(good, 9); }, damaged("the last tensor ends at 8"));
  EXPECT_THAT([&] { parse("[]", 0); }, damaged("'{'"));
  EXPECT_THAT([&] { parse("{\"a\":", 0); }, damaged("JSON"));
  EXPECT_THAT([&] { parse(R"({"a":1})", 0); }, damaged("'a'", "not an object"));
  EXPECT_THAT([&] { parse(R"({"a":{"dtype":"F32","shape":[2]}})", 8); }, damaged("'a'", "data_offsets"));
  EXPECT_THAT([&] { parse(R"({"a":{"dtype":"F32","shape":[-2],"data_offsets":[0,8]}})", 8); }, damaged("'a'", "-2"));
  EXPECT_THAT([&] { parse(R"({"a":{"dtype":"F32","shape":[3],"data_offsets":[0,8]}})", 8); }, damaged("'a'", "has 12"));
  EXPECT_THAT([&] { parse(R"({"a":{"dtype":"F32","shape":[2],"data_offsets":[8,16]}})", 16); }, damaged("'a'", "ends at 0"));
  EXPECT_THAT([&] { parse(R"({"a":{"dtype":"F32","shape":[2],"data_offsets":[8,0]}})", 8); }, damaged("'a'"));
  EXPECT_THAT(
      [&] {
        parse(R"({"a":{"dtype":"U8","shape":[8],"data_offsets":[0,8]},"b":{"dtype":"U8","shape":[4],"data_offsets":[4,8]}})",
              8);
      },
      damaged("'b'", "ends at 8"));
  EXPECT_THAT(
      [&] {
        parse(R"({"a":{"dtype":"U8","shape":[0],"data_offsets":[0,0]},"a":{"dtype":"U8","shape":[0],"data_offsets":[0,0]}})",
              0);
      },
      damaged("'a'", "twice"));
  EXPECT_THAT([&] { parse(R"({"a":{"dtype":"F32","shape":[4294967296,4294967296,2],"data_offsets":[0,8]}})", 8); },
              damaged("'a'", "no memory"));
  EXPECT_THAT([&] { parse(R"({"a":{"dtype":"F32","shape":[0,4294967296,4294967296],"data_offsets":[0,0]}})", 0); },
              damaged("'a'", "no memory"));
  EXPECT_THAT([&] { parse(R"({"__metadata__":{"a":1}})", 0); }, damaged("'a'"));
  EXPECT_THAT([&] { parse(R"({"a":[[[[[[[]]]]]]]})", 0); }, damaged("deep"));
  EXPECT_THAT([&] { parse(R"({"a":{"dtype":"F8_E4M3","shape":[2],"data_offsets":[0,2]}})", 2); },
              ThrowsCode(ErrorCode::kInvalidArgument, "the file 'x'", "'a'", "F8_E4M3"));
  EXPECT_THAT([] { parse_safetensors(std::string(8, '\xff') + "{}", "the file 'x'"); }, damaged("at most 100000000"));
}

Manifest example() {
  Manifest manifest;
  manifest.number = 3;
  manifest.info = {.step = 100, .epoch = 2, .learning_rate = 0.1, .metrics = {{"loss", 0.25}, {"odd", std::nan("")}}};
  manifest.replicas = {2, 1};
  manifest.created = utc_time();
  manifest.writer = "a test";
  manifest.files = {{"weights.safetensors", 1'000'000'000'000, 0xffffffff}};
  manifest.parts = {{"model", "weights.safetensors", {}, {}}, {"data", "", {{"epoch", "2"}}, {"position"}}};
  return manifest;
}

TEST(Manifest, ReadsWhatItWrites) {
  const auto text = example().text();
  const auto again = Manifest::parse(text, "m");
  EXPECT_EQ(again.text(), text);
  EXPECT_EQ(again.info.step, 100);
  EXPECT_EQ(again.info.learning_rate, 0.1);
  EXPECT_TRUE(std::isnan(again.info.metrics.at("odd")));
  EXPECT_THAT(again.replicas, ElementsAre(2, 1));
  EXPECT_EQ(again.files[0].crc32c, 0xffffffffU);
  EXPECT_EQ(again.find_part("data")->texts.at("epoch"), "2");
  EXPECT_THAT(again.find_part("data")->blobs, ElementsAre("position"));
  EXPECT_EQ(again.find_part("nothing"), nullptr);
}

TEST(Manifest, DamageIsFoundWhereverItIs) {
  const auto text = example().text();
  for (std::size_t i = 0; i + 1 < text.size(); ++i) {
    EXPECT_THAT([&] { Manifest::parse(text.substr(0, i), "m"); }, ThrowsCode(ErrorCode::kDataLoss, "m is damaged")) << i;
    auto flipped = text;
    flipped[i] = static_cast<char>(flipped[i] ^ 1);
    if (text[i] == ' ' || text[i] == '\n') continue;  // between words any space is the same
    EXPECT_THAT([&] { Manifest::parse(flipped, "m"); }, ThrowsCode(ErrorCode::kDataLoss, "m is damaged")) << i << flipped;
  }
}

TEST(Manifest, NamesOnlyFilesBesideIt) {
  for (const auto* name : {"../../etc/passwd", "/etc/passwd", "", ".hidden"}) {
    auto manifest = example();
    manifest.files[0].name = name;
    EXPECT_THAT([&] { Manifest::parse(manifest.text(), "m"); }, ThrowsCode(ErrorCode::kDataLoss, "name of a file")) << name;
  }
}

}  // namespace
}  // namespace lockstep

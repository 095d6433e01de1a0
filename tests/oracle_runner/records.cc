#include <charconv>
#include <cstdlib>
#include <cstring>
#include <fstream>
#include <span>

#include "lockstep/base/error.h"
#include "lockstep/data/io/example.h"
#include "lockstep/data/parse_example.h"
#include "tests/oracle_runner/digests.h"
#include "tests/oracle_runner/files.h"
#include "tests/oracle_runner/pipeline.h"
#include "tests/oracle_runner/suites.h"
#include "tests/oracle_runner/values.h"

// What the readers of files give, up to the damage, and what parse_example makes of records.

namespace lockstep::oracle {
namespace {

using data::Dataset;
using data::Element;

data::Compression to_compression(const std::string& name) {
  if (name == "GZIP") return data::Compression::kGzip;
  if (name == "ZLIB") return data::Compression::kZlib;
  if (!name.empty()) throw NotApplicable("needs the compression " + name);
  return data::Compression::kNone;
}

Dataset open_files(const Json& input) {
  const data::ReadOptions options{.compression = to_compression(get_or<std::string>(input, "compression", ""))};
  std::vector<std::string> paths;
  for (const auto& path : input.contains("paths") ? input["paths"] : Json::array({input.at("path")}))
    paths.push_back(oracle_folder() + "/" + path.get<std::string>());
  const auto reader = input.at("reader").get<std::string>();
  if (reader == "text") return Dataset::text_lines(paths, options);
  if (reader == "fixed")
    return Dataset::fixed_length_records(paths,
                                         {.record = input.at("record_bytes"),
                                          .header = get_or<std::int64_t>(input, "header_bytes", 0),
                                          .footer = get_or<std::int64_t>(input, "footer_bytes", 0)},
                                         options);
  const auto at_once = get_or<int>(input, "num_parallel_reads", 1);
  if (at_once == 1) return Dataset::tf_record(paths, options);
  return text_dataset(paths).interleave([options](const std::string& file) { return Dataset::tf_record({file}, options); },
                                        at_once, 1, at_once);
}

struct Records {
  std::vector<std::string> values = {};
  Json error = nullptr;
};

Records read_all(const Json& input) {
  Records records;
  try {
    auto iterator = open_files(input).make_iterator();
    for (Element element; iterator.next(element);) records.values.push_back(element.text());
  } catch (const Error& error) {
    records.error = {{"code", name_of(error.code())}, {"message", error.what()}};
  }
  return records;
}

Json describe(const std::string& record, bool shows_bytes) {
  Json one = {{"length", record.size()}, {"sha256", sha256_of(record).substr(0, 16)}, {"crc32", crc32_of(record)}};
  if (shows_bytes) one["base64"] = base64_of(record);
  return one;
}

// The first and last three of many. How many are shown, and which with their bytes, is the file's choice.
std::vector<std::size_t> shown_of(const Case& one, std::size_t count) {
  std::vector<std::size_t> shown;
  const bool shows_some = one.asked().is_object() && one.asked().contains("all_sha256") && count >= 6;
  for (std::size_t i = 0; i < count; ++i)
    if (!shows_some || i < 3 || i + 3 >= count) shown.push_back(i);
  return shown;
}

bool shows_bytes(const Case& one, std::size_t place) {
  const auto& asked = one.asked();
  return asked.is_object() && asked.contains("records") && place < asked["records"].size() &&
         asked["records"][place].contains("base64");
}

Json answer_reader(const Case& one) {
  const auto records = read_all(one.input);
  Json answer = {{"count", records.values.size()}, {"records", Json::array()}};
  const auto shown = shown_of(one, records.values.size());
  for (std::size_t place = 0; place < shown.size(); ++place)
    answer["records"].push_back(describe(records.values[shown[place]], shows_bytes(one, place)));
  if (shown.size() < records.values.size()) {
    std::string digests;
    for (const auto& record : records.values) digests += sha256_of(record).substr(0, 16);
    answer["records_are"] = "the first three and the last three";
    answer["all_sha256"] = sha256_of(digests);
  }
  if (!records.error.is_null()) answer["error"] = records.error;
  return answer;
}

// As the file writes a float32: with the fewest digits that mean it.
double shortest(float value) {
  char digits[32] = {};
  std::to_chars(digits, digits + sizeof digits - 1, value);
  return std::strtod(digits, nullptr);
}

Json values_of(const data::FeatureView& feature) {
  const auto count = static_cast<std::size_t>(data::count_values(feature));
  Json values = Json::array();
  bool is_whole = true;
  if (feature.kind == data::FeatureKind::kBytes) {
    std::vector<std::string_view> strings;
    is_whole = data::read_values(feature, strings);
    for (const auto text : strings) values.push_back(text_to_json(std::string(text)));
  } else if (feature.kind == data::FeatureKind::kFloat) {
    auto numbers = at::empty({static_cast<std::int64_t>(count)}, at::kFloat);
    is_whole = data::read_values(feature, std::span(numbers.data_ptr<float>(), count));
    values = to_json(numbers)["data"];
    for (auto& value : values)
      if (value.is_number()) value = shortest(value.get<float>());
  } else if (feature.kind == data::FeatureKind::kInt64) {
    std::vector<std::int64_t> numbers(count);
    is_whole = data::read_values(feature, std::span(numbers));
    values = numbers;
  }
  if (!is_whole) throw std::runtime_error("a feature cannot be read");
  return values;
}

Json kind_of(data::FeatureKind kind) {
  switch (kind) {
    case data::FeatureKind::kBytes: return "bytes_list";
    case data::FeatureKind::kFloat: return "float_list";
    case data::FeatureKind::kInt64: return "int64_list";
    case data::FeatureKind::kNone: return nullptr;
  }
  return nullptr;
}

Json answer_examples(const Case& one) {
  Json examples = Json::array();
  for (const auto& record : read_all(one.input).values) {
    Json features = Json::object();
    const bool is_example = data::visit_features(record, [&](const data::FeatureView& feature) {
      features[std::string(feature.name)] = {{"kind", kind_of(feature.kind)}, {"values", values_of(feature)}};
    });
    if (!is_example) throw std::runtime_error("a record is no example");
    examples.push_back({{"base64", base64_of(record)}, {"features", std::move(features)}});
  }
  return {{"examples", std::move(examples)}};
}

data::Feature to_feature(const Json& input) {
  using data::Feature;
  const auto key = input.at("key").get<std::string>();
  const auto shape = input.at("shape").get<std::vector<std::int64_t>>();
  const auto dtype = input.at("dtype").get<std::string>();
  auto feature = dtype == "int64"     ? Feature::int64(key, shape)
                 : dtype == "float32" ? Feature::float32(key, shape)
                                      : Feature::bytes(key, shape);
  if (input.at("feature") == "FixedLenSequenceFeature") feature = feature.sequence();
  else if (input.at("feature") != "FixedLenFeature") throw NotApplicable("needs " + input.at("feature").get<std::string>());
  const auto& otherwise = input.at("default");
  if (otherwise.is_string()) return feature.or_else(otherwise.get<std::string>());
  return otherwise.is_null() ? feature : feature.or_else(otherwise.get<double>());
}

Json answer_parse(const Case& one) {
  const auto bytes = bytes_of_base64(one.input.at("example_base64").get<std::string>());
  auto element = data::ExampleParser({to_feature(one.input)})(data::Bytes{{bytes}, {}});
  element.components().at(0).name.clear();
  return {{"value", to_json(element)}};
}

std::string read_file(const std::string& path) {
  std::ifstream in(path, std::ios::binary);
  return {std::istreambuf_iterator<char>(in), {}};
}

// Whether bytes are left behind the last whole record that are too few for another one's header.
bool ends_inside_a_header(std::string_view file) {
  constexpr std::size_t kHeader = 12;
  constexpr std::size_t kFooter = 4;
  while (file.size() >= kHeader) {
    std::uint64_t length = 0;
    std::memcpy(&length, file.data(), sizeof length);
    if (file.size() < kHeader + kFooter || length > file.size() - kHeader - kFooter) return false;
    file.remove_prefix(kHeader + length + kFooter);
  }
  return !file.empty();
}

}  // namespace

Json answer_records(const Case& one) {
  const auto reader = one.input.at("reader").get<std::string>();
  if (reader == "example") return answer_examples(one);
  if (reader == "parse_single_example") return answer_parse(one);
  return answer_reader(one);
}

std::optional<Difference> difference_in_records(const Case& one) {
  auto ours = one.asked();
  const bool is_plain = get_or<std::string>(one.input, "compression", "").empty();
  if (!ours.is_object() || !one.input.contains("path") || !is_plain) return std::nullopt;
  const auto file = read_file(oracle_folder() + "/" + one.input["path"].get<std::string>());
  const auto reader = one.input.at("reader").get<std::string>();
  const auto around = get_or<std::size_t>(one.input, "header_bytes", 0) + get_or<std::size_t>(one.input, "footer_bytes", 0);
  ours["error"] = {{"code", "kDataLoss"}};
  if (reader == "fixed" && file.size() < around)
    return Difference{"A8: a file without room for its header is damaged", {{{"expect", std::move(ours)}}}};
  if (reader == "tfrecord" && ends_inside_a_header(file))
    return Difference{"A8: a TFRecord file cut inside a length header, or followed by garbage, is damaged",
                      {{{"expect", std::move(ours)}}}};
  return std::nullopt;
}

}  // namespace lockstep::oracle

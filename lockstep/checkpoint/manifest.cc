#include "lockstep/checkpoint/manifest.h"

#include <algorithm>
#include <ctime>
#include <iomanip>
#include <limits>
#include <nlohmann/json.hpp>
#include <sstream>

#include "lockstep/base/error.h"
#include "lockstep/base/str.h"
#include "lockstep/data/io/crc32c.h"

namespace lockstep {
namespace {

using Json = nlohmann::ordered_json;

constexpr const char* kSum = "crc32c_of_all_above";
constexpr const char* kFormat = "lockstep checkpoint";

std::string sum_of(const Json& json) {
  const auto text = json.dump();
  std::ostringstream out;
  out << std::hex << std::setw(8) << std::setfill('0') << data::crc32c(text.data(), text.size());
  return out.str();
}

Json json_of(const Manifest& manifest) {
  auto json = Json{{"format", kFormat}, {"format_version", Manifest::kFormatVersion}, {"number", manifest.number}};
  json["step"] = manifest.info.step;
  json["epoch"] = manifest.info.epoch;
  if (manifest.info.learning_rate) json["learning_rate"] = *manifest.info.learning_rate;
  json["metrics"] = manifest.info.metrics.empty() ? Json::object() : Json(manifest.info.metrics);
  json["replicas_of_workers"] = manifest.replicas;
  json["created"] = manifest.created;
  json["writer"] = manifest.writer;
  json["files"] = Json::array();
  for (const auto& file : manifest.files)
    json["files"].push_back(Json{{"name", file.name}, {"bytes", file.bytes}, {"crc32c", file.crc32c}});
  json["parts"] = Json::array();
  for (const auto& part : manifest.parts) {
    auto one = Json{{"name", part.name}};
    if (!part.weights_file.empty()) one["weights_file"] = part.weights_file;
    if (!part.texts.empty()) one["values"] = part.texts;
    if (!part.blobs.empty()) one["values_in_state_file"] = part.blobs;
    if (!part.server_files.empty()) one["files_of_servers"] = part.server_files;
    json["parts"].push_back(std::move(one));
  }
  return json;
}

// Throws for one that would lead out of the folder.
std::string file_name(const Json& value) {
  auto name = value.get<std::string>();
  if (name.empty() || name[0] == '.' || name.find('/') != std::string::npos || name.find('\0') != std::string::npos)
    throw Error(ErrorCode::kDataLoss, str("'", name, "' is not the name of a file beside the manifest"));
  return name;
}

double number_or_nan(const Json& value) {
  return value.is_null() ? std::numeric_limits<double>::quiet_NaN() : value.get<double>();  // JSON has no NaN
}

Manifest manifest_of(const Json& json) {
  Manifest manifest;
  json.at("number").get_to(manifest.number);
  json.at("step").get_to(manifest.info.step);
  json.at("epoch").get_to(manifest.info.epoch);
  if (json.contains("learning_rate")) manifest.info.learning_rate = number_or_nan(json.at("learning_rate"));
  for (const auto& [name, value] : json.at("metrics").items()) manifest.info.metrics[name] = number_or_nan(value);
  json.at("replicas_of_workers").get_to(manifest.replicas);
  json.at("created").get_to(manifest.created);
  json.at("writer").get_to(manifest.writer);
  for (const auto& file : json.at("files"))
    manifest.files.push_back(
        {file_name(file.at("name")), file.at("bytes").get<std::uint64_t>(), file.at("crc32c").get<std::uint32_t>()});
  for (const auto& one : json.at("parts")) {
    Manifest::Part part{.name = one.at("name").get<std::string>()};
    if (one.contains("weights_file")) part.weights_file = file_name(one.at("weights_file"));
    if (one.contains("values")) one.at("values").get_to(part.texts);
    if (one.contains("values_in_state_file")) one.at("values_in_state_file").get_to(part.blobs);
    if (one.contains("files_of_servers"))
      for (const auto& file : one.at("files_of_servers")) part.server_files.push_back(file_name(file));
    manifest.parts.push_back(std::move(part));
  }
  return manifest;
}

Json parse_bounded(const std::string& text) {
  constexpr int kDeepest = 10;
  return Json::parse(text, [](int depth, Json::parse_event_t, Json&) {
    if (depth > kDeepest) throw Error(ErrorCode::kDataLoss, "nested too deep");
    return true;
  });
}

}  // namespace

const Manifest::Part* Manifest::find_part(const std::string& name) const {
  const auto found = std::ranges::find(parts, name, &Part::name);
  return found == parts.end() ? nullptr : &*found;
}

const Manifest::File* Manifest::find_file(const std::string& name) const {
  const auto found = std::ranges::find(files, name, &File::name);
  return found == files.end() ? nullptr : &*found;
}

bool Manifest::is_of_server(const std::string& file) const {
  return std::ranges::any_of(
      parts, [&](const Part& part) { return std::ranges::find(part.server_files, file) != part.server_files.end(); });
}

std::string Manifest::text() const {
  try {
    auto json = json_of(*this);
    json[kSum] = sum_of(json);
    return json.dump(2) + "\n";
  } catch (const Json::exception& error) {
    throw Error(ErrorCode::kInvalidArgument, str("a name or text of a checkpoint is not UTF-8: ", error.what()));
  }
}

Manifest Manifest::parse(const std::string& text, const std::string& what) {
  const auto damaged = [&](const std::string& why) {
    return Error(ErrorCode::kDataLoss, str(what, " is damaged, or not a checkpoint's: ", why));
  };
  try {
    auto json = parse_bounded(text);
    if (!json.is_object() || json.value("format", "") != kFormat) throw damaged("it does not say that it is one");
    const auto sum = json.value(kSum, "");
    const auto version = json.at("format_version").get<int>();
    json.erase(kSum);
    if (sum_of(json) != sum) throw damaged("its checksum differs");
    if (version > kFormatVersion)
      throw Error(ErrorCode::kUnimplemented,
                  str(what, " is of version ", version, " of the format, and this library reads up to ", kFormatVersion,
                      "; read it with a newer Lockstep"));
    return manifest_of(json);
  } catch (const Json::exception& error) {
    throw damaged(error.what());
  } catch (const Error& error) {
    if (error.message().starts_with(what)) throw;
    throw damaged(error.message());
  }
}

std::string utc_time() {
  const auto now = std::time(nullptr);
  std::tm fields{};
  gmtime_r(&now, &fields);
  return str(std::put_time(&fields, "%Y-%m-%dT%H:%M:%SZ"));
}

bool is_utf8(const std::string& bytes) {
  try {
    return !Json(bytes).dump().empty();
  } catch (const Json::exception&) {
    return false;
  }
}

}  // namespace lockstep

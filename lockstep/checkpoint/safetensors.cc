#include "lockstep/checkpoint/safetensors.h"

#include <algorithm>
#include <cstring>
#include <nlohmann/json.hpp>
#include <set>

#include "lockstep/base/error.h"
#include "lockstep/base/str.h"

namespace lockstep {
namespace {

using Json = nlohmann::json;                 // of what is read: names are looked up by name
using OrderedJson = nlohmann::ordered_json;  // of what is written

constexpr std::size_t kLengthBytes = 8;
constexpr std::uint64_t kLongestHeader = 100'000'000;  // the format's own limit
constexpr std::size_t kAlignment = 64;
constexpr const char* kMetadata = "__metadata__";

[[noreturn]] void damaged(const std::string& what, const std::string& why) {
  throw Error(ErrorCode::kDataLoss, str(what, " is not a whole safetensors file: ", why));
}

// The library keeps the last of equal keys: here they are an error.
Json parse_once(std::string_view text, const std::string& what) {
  constexpr int kDeepest = 4;
  std::vector<std::set<std::string>> keys(kDeepest + 2);
  const auto look = [&](int depth, Json::parse_event_t event, Json& parsed) {
    if (depth > kDeepest) damaged(what, "its header is nested too deep");
    const auto level = static_cast<std::size_t>(depth);
    if (event == Json::parse_event_t::object_start) keys[level + 1].clear();
    if (event == Json::parse_event_t::key && !keys[level].insert(parsed.get<std::string>()).second)
      damaged(what, str("'", parsed.get<std::string>(), "' stands twice in its header"));
    return true;
  };
  try {
    return Json::parse(text, look);
  } catch (const Json::exception& error) {
    damaged(what, str("its header is not JSON (", error.what(), ")"));
  }
}

std::uint64_t unsigned_of(const Json& value, const std::string& what, const std::string& tensor) {
  if (!value.is_number_unsigned()) damaged(what, str("tensor '", tensor, "': ", value.dump().substr(0, 40), " is not a size"));
  return value.get<std::uint64_t>();
}

const Json& member(const Json& object, const char* key, const std::string& what, const std::string& tensor) {
  const auto found = object.find(key);
  if (found == object.end()) damaged(what, str("tensor '", tensor, "' has no '", key, "'"));
  return *found;
}

// What the shape says the tensor's bytes are.
std::uint64_t bytes_of(const SafetensorsEntry& entry, const std::string& what) {
  std::uint64_t bytes = safetensors_element_bytes(entry.dtype);
  if (bytes == 0)
    throw Error(ErrorCode::kInvalidArgument, str(what, ": tensor '", entry.name, "' has the element type '", entry.dtype,
                                                 "'; known are F64 F32 F16 BF16 I64 I32 I16 I8 U8 BOOL"));
  // An empty tensor has no bytes, but its other sizes must not overflow who multiplies them.
  std::uint64_t elements = 1;
  bool is_empty = false;
  for (const auto size : entry.shape) {
    is_empty = is_empty || size == 0;
    if (__builtin_mul_overflow(elements, std::max<std::uint64_t>(1, static_cast<std::uint64_t>(size)), &elements) ||
        elements > (std::uint64_t{1} << 60))
      damaged(what, str("tensor '", entry.name, "' has a shape that no memory can hold"));
  }
  return is_empty ? 0 : bytes * elements;
}

SafetensorsEntry entry_of(const std::string& name, const Json& value, const std::string& what) {
  if (!value.is_object()) damaged(what, str("tensor '", name, "' is ", value.dump().substr(0, 40), ", not an object"));
  SafetensorsEntry entry{.name = name, .dtype = {}, .shape = {}};
  const auto& dtype = member(value, "dtype", what, name);
  if (!dtype.is_string()) damaged(what, str("tensor '", name, "' has an element type that is not a text"));
  entry.dtype = dtype.get<std::string>();
  const auto& shape = member(value, "shape", what, name);
  if (!shape.is_array()) damaged(what, str("tensor '", name, "' has a shape that is not a list"));
  for (const auto& size : shape) {
    const auto number = unsigned_of(size, what, name);
    if (number > (std::uint64_t{1} << 60)) damaged(what, str("tensor '", name, "' has a shape that no memory can hold"));
    entry.shape.push_back(static_cast<std::int64_t>(number));
  }
  const auto& offsets = member(value, "data_offsets", what, name);
  if (!offsets.is_array() || offsets.size() != 2) damaged(what, str("tensor '", name, "': data_offsets are not two numbers"));
  entry.begin = unsigned_of(offsets[0], what, name);
  entry.end = unsigned_of(offsets[1], what, name);
  return entry;
}

void take_metadata(const Json& value, SafetensorsHeader& header, const std::string& what) {
  if (!value.is_object()) damaged(what, "its metadata is not an object");
  for (const auto& [key, text] : value.items()) {
    if (!text.is_string()) damaged(what, str("its metadata '", key, "' is not a text"));
    header.metadata[key] = text.get<std::string>();
  }
}

void check_places(const SafetensorsHeader& header, std::uint64_t data_bytes, const std::string& what) {
  std::uint64_t at = 0;
  for (const auto& entry : header.tensors) {
    const auto place = str("tensor '", entry.name, "' is said to be bytes ", entry.begin, " to ", entry.end);
    if (entry.begin > entry.end || entry.end > data_bytes)
      damaged(what, str(place, ", and there are ", data_bytes, "; it may have been cut"));
    if (entry.begin != at) damaged(what, str(place, ", and the one before ends at ", at));
    const auto expected = bytes_of(entry, what);
    if (entry.end - entry.begin != expected)
      damaged(what, str(place, ", and its shape [", join(", ", entry.shape), "] of ", entry.dtype, " has ", expected));
    at = entry.end;
  }
  if (at != data_bytes) damaged(what, str("there are ", data_bytes, " bytes of tensors, and the last tensor ends at ", at));
}

template <typename J>
std::string dump(const J& value) {
  try {
    return value.dump();
  } catch (const Json::exception& error) {
    throw Error(ErrorCode::kInvalidArgument, str("a name or a metadata text is not UTF-8: ", error.what()));
  }
}

}  // namespace

std::size_t safetensors_element_bytes(std::string_view dtype) noexcept {
  if (dtype == "F64" || dtype == "I64") return 8;
  if (dtype == "F32" || dtype == "I32") return 4;
  if (dtype == "F16" || dtype == "BF16" || dtype == "I16") return 2;
  return dtype == "I8" || dtype == "U8" || dtype == "BOOL" ? 1 : 0;
}

SafetensorsHeader parse_safetensors(std::string_view bytes, const std::string& what) {
  if (bytes.size() < kLengthBytes) damaged(what, str("it has ", bytes.size(), " bytes"));
  std::uint64_t length = 0;
  for (std::size_t i = kLengthBytes; i-- > 0;) length = length << 8 | static_cast<unsigned char>(bytes[i]);
  if (length > kLongestHeader || length > bytes.size() - kLengthBytes)
    damaged(what, str("its header is said to have ", length, " bytes, of ", bytes.size() - kLengthBytes,
                      length > kLongestHeader ? str("; at most ", kLongestHeader, " are allowed") : "; it may have been cut"));
  SafetensorsHeader header;
  header.header_bytes = kLengthBytes + length;
  const auto text = bytes.substr(kLengthBytes, length);
  if (text.empty() || text[0] != '{') damaged(what, "its header does not begin with '{'");
  const auto json = parse_once(text, what);
  for (const auto& [name, value] : json.items()) {
    if (name == kMetadata) take_metadata(value, header, what);
    else header.tensors.push_back(entry_of(name, value, what));
  }
  // Empty tensors share their place with what follows.
  std::ranges::stable_sort(header.tensors, {}, [](const SafetensorsEntry& entry) { return std::pair(entry.begin, entry.end); });
  check_places(header, bytes.size() - header.header_bytes, what);
  return header;
}

std::string make_safetensors_header(std::vector<SafetensorsEntry>& tensors,
                                    const std::map<std::string, std::string>& metadata) {
  auto json = OrderedJson::object();
  if (!metadata.empty()) json[kMetadata] = metadata;
  std::uint64_t at = 0;
  std::set<std::string> names{kMetadata};
  std::string text = dump(json);
  text.pop_back();  // the members are put in one by one: an ordered object looks through all for each new one
  for (auto& entry : tensors) {
    if (!names.insert(entry.name).second)
      throw Error(ErrorCode::kInvalidArgument,
                  str("a safetensors file cannot have ", entry.name == kMetadata ? "a tensor" : "two tensors", " named '",
                      entry.name, "'"));
    entry.begin = at;
    entry.end = at += bytes_of(entry, "a file to be written");
    OrderedJson value{{"dtype", entry.dtype}, {"shape", entry.shape}, {"data_offsets", {entry.begin, entry.end}}};
    text += str(text.size() > 1 ? "," : "", dump(OrderedJson(entry.name)), ":", dump(value));
  }
  text += '}';
  text.append((kAlignment - (kLengthBytes + text.size()) % kAlignment) % kAlignment, ' ');
  std::string header(kLengthBytes, '\0');
  for (std::size_t i = 0; i < kLengthBytes; ++i) header[i] = static_cast<char>(text.size() >> (8 * i));
  return header + text;
}

}  // namespace lockstep

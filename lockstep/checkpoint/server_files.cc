#include "lockstep/checkpoint/server_files.h"

#include <ATen/ATen.h>

#include <algorithm>
#include <nlohmann/json.hpp>

#include "lockstep/base/error.h"
#include "lockstep/base/str.h"
#include "lockstep/checkpoint/weights.h"

namespace lockstep::internal {
namespace {

using Json = nlohmann::ordered_json;

[[noreturn]] void damaged(const std::string& what, const std::string& why) {
  throw Error(ErrorCode::kDataLoss, str(what, " is damaged: ", why));
}

Json json_of(const SavedPart& part) {
  const auto& description = part.description;
  const auto& initial = description.initial;
  Json json{{"of", whole_name(description)},
            {"whole_shape", description.whole_shape},
            {"first_row", description.first_row},
            {"version", part.version},
            {"is_trainable", description.is_trainable},
            {"initial", {static_cast<int>(initial.kind), initial.first, initial.second, initial.seed}}};
  if (description.rule.empty()) return json;
  json["rule"] = description.rule;
  json["numbers"] = Json::object();
  for (const auto& [name, number] : part.numbers) json["numbers"][name] = number;
  return json;
}

SavedPart part_of(const std::string& name, const Json& json) {
  SavedPart part;
  auto& description = part.description;
  description.name = name;
  json.at("whole_shape").get_to(description.whole_shape);
  json.at("first_row").get_to(description.first_row);
  json.at("version").get_to(part.version);
  json.at("is_trainable").get_to(description.is_trainable);
  const auto& initial = json.at("initial");
  description.initial = {static_cast<ps::Initial::Kind>(initial.at(0).get<int>()), initial.at(1).get<double>(),
                         initial.at(2).get<double>(), initial.at(3).get<std::uint64_t>()};
  if (!json.contains("rule")) return part;
  json.at("rule").get_to(description.rule);
  for (const auto& [key, number] : json.at("numbers").items()) part.numbers.emplace_back(key, number.get<double>());
  return part;
}

std::int64_t rows_in(const std::vector<std::int64_t>& shape) { return shape.empty() ? 1 : shape[0]; }

}  // namespace

std::string whole_name(const ps::Description& description) {
  if (description.shape == description.whole_shape) return description.name;
  return description.name.substr(0, description.name.rfind("/part_"));
}

std::string describe_parts(const std::vector<SavedPart>& parts) {
  auto json = Json::object();
  for (const auto& part : parts) json.push_back({part.description.name, json_of(part)});
  try {
    return json.dump();
  } catch (const Json::exception& error) {
    throw Error(ErrorCode::kInvalidArgument, str("the name of a variable is not UTF-8: ", error.what()));
  }
}

std::map<std::string, SavedPart> parse_parts(const std::string& text, const std::string& what) {
  try {
    std::map<std::string, SavedPart> parts;
    const auto all = Json::parse(text);
    for (const auto& [name, json] : all.items()) parts.emplace(name, part_of(name, json));
    return parts;
  } catch (const Json::exception& error) {
    damaged(what, error.what());
  }
}

SavedVariables::SavedVariables(const std::map<std::string, OpenedCheckpoint::File>& files, Rows rows) {
  const auto is_state = [](const std::string& name) { return name.starts_with(str(kStatePrefix, "-")); };
  for (const auto& [name, file] : files)
    if (!is_state(name)) add_values(name, file);
  put_in_order(rows);
  for (const auto& [name, file] : files)
    if (is_state(name)) add_state(file);
}

void SavedVariables::add_values(const std::string& file_name, const OpenedCheckpoint::File& file) {
  const auto what = str("the file '", file_name, "'");
  std::map<std::string, SavedPart> parts;
  const auto found = file.header.metadata.find(kVariablesKey);
  if (found != file.header.metadata.end()) parts = parse_parts(found->second, what);
  for (const auto& entry : file.header.tensors) {
    Slice slice{.value = view_of(file, entry)};
    auto& description = slice.saved.description;
    if (found != file.header.metadata.end()) {
      const auto part = parts.find(entry.name);
      if (part == parts.end()) damaged(what, str("it does not say what '", entry.name, "' is a part of"));
      slice.saved = part->second;
    } else {
      description.name = entry.name;
      description.whole_shape = entry.shape;
    }
    description.shape = entry.shape;
    description.dtype = static_cast<std::int8_t>(slice.value.scalar_type());
    slice.first_row = description.first_row;
    slice.rows = rows_in(entry.shape);
    auto& whole = all_[whole_name(description)];
    whole.shape = description.whole_shape;
    whole.slices.push_back(std::move(slice));
  }
}

void SavedVariables::put_in_order(Rows rows) {
  for (auto& [name, whole] : all_) {
    std::ranges::sort(whole.slices, {}, &Slice::first_row);
    std::int64_t next = 0;
    for (const auto& slice : whole.slices) {
      const bool follows = rows == Rows::kAll ? slice.first_row == next : slice.first_row >= next;
      if (!follows || slice.saved.description.whole_shape != whole.shape)
        damaged(str("variable '", name, "'"),
                str("a part of [", join(", ", slice.saved.description.whole_shape), "] begins at row ", slice.first_row,
                    ", and row ", next, " of [", join(", ", whole.shape), "] is the next"));
      next = slice.first_row + slice.rows;
    }
    if (rows == Rows::kAll && next != rows_in(whole.shape))
      damaged(str("variable '", name, "'"), str("there are ", next, " rows of ", rows_in(whole.shape)));
  }
}

void SavedVariables::add_state(const OpenedCheckpoint::File& file) {
  std::map<std::string, Slice*> by_name;
  for (auto& [name, whole] : all_)
    for (auto& slice : whole.slices) by_name[slice.saved.description.name] = &slice;
  for (const auto& entry : file.header.tensors) {
    const auto slash = entry.name.find('/');
    if (slash == std::string::npos) continue;
    const auto found = by_name.find(entry.name.substr(slash + 1));
    if (found == by_name.end() || found->second->value.sizes() != at::IntArrayRef(entry.shape))
      damaged(str("the optimizers' state '", entry.name, "'"), "there is no such variable of its shape");
    found->second->state.emplace_back(entry.name.substr(0, slash), view_of(file, entry));
  }
}

const SavedVariables::Whole* SavedVariables::find(const std::string& name) const {
  const auto found = all_.find(name);
  return found == all_.end() ? nullptr : &found->second;
}

NamedTensors SavedVariables::joined() const {
  NamedTensors tensors;
  for (const auto& [name, whole] : all_) {
    std::vector<at::Tensor> parts;
    for (const auto& slice : whole.slices) parts.push_back(slice.value);
    tensors.emplace_back(name, parts.size() == 1 ? parts[0] : at::cat(parts));
  }
  return tensors;
}

void for_each_slice(const SavedVariables::Whole& whole, std::int64_t first, std::int64_t count, const OnRows& fn) {
  for (const auto& slice : whole.slices) {
    const auto begin = std::max(first, slice.first_row);
    const auto end = std::min(first + count, slice.first_row + slice.rows);
    if (begin < end) fn(slice, begin - slice.first_row, begin - first, end - begin);
  }
}

at::Tensor rows_of(const at::Tensor& tensor, std::int64_t first, std::int64_t count) {
  return tensor.dim() == 0 ? tensor : tensor.narrow(0, first, count);
}

}  // namespace lockstep::internal

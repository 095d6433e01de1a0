#include "lockstep/serve/snapshot_files.h"

#include <ATen/ATen.h>

#include <algorithm>

#include "lockstep/base/error.h"
#include "lockstep/base/number.h"
#include "lockstep/base/str.h"
#include "lockstep/cluster/coordination.h"
#include "lockstep/ps/client_table.h"
#include "lockstep/serve/store_files.h"

namespace lockstep::internal {
namespace {

constexpr const char* kPart = "variables";
constexpr const char* kClients = "clients";

at::Tensor as_tensor(const std::string& bytes) {
  auto tensor = at::empty({static_cast<std::int64_t>(bytes.size())}, at::kByte);
  std::copy(bytes.begin(), bytes.end(), static_cast<char*>(tensor.data_ptr()));
  return tensor;
}

const Manifest::Part& part_in(const OpenedCheckpoint& opened) {
  const auto* const part = opened.manifest.find_part(kPart);
  if (part == nullptr || !part->texts.contains(kSnapshotUpdates))
    throw Error(ErrorCode::kDataLoss, str("'", opened.path, "' is not a parameter server's snapshot"));
  return *part;
}

}  // namespace

void write_snapshot(ps::VariableStore& store, const SnapshotTarget& target) {
  CheckpointImage image;
  image.manifest.number = target.directory.next_number();
  image.manifest.created = utc_time();
  image.manifest.writer = build_name();
  image.manifest.parts.push_back({.name = kPart});
  image.write_others = [&](const std::string& folder, Manifest& manifest) {
    SnapshotNumbers numbers;
    const auto beside = [&] {
      numbers = target.numbers();
      return NamedTensors{{kClients, as_tensor(store.clients().save())}};
    };
    auto& part = manifest.parts[0];
    for (auto& file : write_store(store, target.files, {folder, str("-", kPart, target.suffix), {}, beside})) {
      part.server_files.push_back(file.name);
      manifest.files.push_back(std::move(file));
    }
    for (const auto& [name, number] : numbers) part.texts[name] = str(number);
    manifest.info.step = static_cast<std::int64_t>(numbers.at(kSnapshotUpdates));
  };
  target.directory.write(image);
}

std::uint64_t number_in(const OpenedCheckpoint& opened, const std::string& name) {
  const auto& texts = part_in(opened).texts;
  const auto found = texts.find(name);
  return found == texts.end() ? 0 : whole_number<std::uint64_t>(found->second).value_or(0);
}

void check_snapshot(const OpenedCheckpoint& opened) {
  for (const auto& name : part_in(opened).server_files)
    if (const auto* const file = opened.manifest.find_file(name)) check_checkpoint_file(opened.path, *file);
  SavedVariables(opened.files, SavedVariables::Rows::kSome);
}

void fill_store(ps::VariableStore& store, const OpenedCheckpoint& opened, std::uint64_t unseen) {
  const SavedVariables saved(opened.files, SavedVariables::Rows::kSome);
  for (const auto& [name, whole] : saved.all())
    for (const auto& slice : whole.slices) {
      const auto& description = slice.saved.description;
      store.add(description)->change([&](at::Tensor& value, ps::UpdateRule* rule, std::uint64_t) {
        return fill_variable(store.options().rules, description, whole, {&value, rule}) + unseen;
      });
    }
  for (const auto& [name, file] : opened.files)
    for (const auto& entry : file.header.tensors)
      if (entry.name == kClients && name.starts_with(kStatePrefix))
        store.clients().load(
            std::string(file.bytes->bytes().substr(file.header.header_bytes + entry.begin, entry.end - entry.begin)));
}

}  // namespace lockstep::internal

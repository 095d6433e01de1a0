#include "lockstep/serve/snapshots.h"

#include <ATen/ATen.h>

#include <algorithm>
#include <random>

#include "lockstep/base/error.h"
#include "lockstep/base/log.h"
#include "lockstep/base/number.h"
#include "lockstep/base/str.h"
#include "lockstep/base/thread.h"
#include "lockstep/cluster/coordination.h"
#include "lockstep/ps/client_table.h"
#include "lockstep/serve/store_files.h"

namespace lockstep::internal {
namespace {

constexpr const char* kPart = "variables";
constexpr const char* kClients = "clients";
constexpr const char* kUpdates = "updates";
constexpr std::int64_t kKept = 2;
constexpr std::chrono::seconds kTick{1};
constexpr std::uint64_t kUnknown = std::uint64_t{1}
                                   << 32;  // more operations than a period has, where they could not be counted

std::uint64_t random_number() {
  std::random_device device;
  return (std::uint64_t{device()} << 32 | device()) | 1;
}

at::Tensor as_tensor(const std::string& bytes) {
  auto tensor = at::empty({static_cast<std::int64_t>(bytes.size())}, at::kByte);
  std::copy(bytes.begin(), bytes.end(), static_cast<char*>(tensor.data_ptr()));
  return tensor;
}

const Manifest::Part& part_in(const OpenedCheckpoint& opened) {
  const auto* const part = opened.manifest.find_part(kPart);
  if (part == nullptr || !part->texts.contains(kUpdates))
    throw Error(ErrorCode::kDataLoss, str("'", opened.path, "' is not a parameter server's snapshot"));
  return *part;
}

void check_all(const OpenedCheckpoint& opened) {
  for (const auto& name : part_in(opened).server_files)
    if (const auto* const file = opened.manifest.find_file(name)) check_checkpoint_file(opened.path, *file);
  SavedVariables(opened.files, SavedVariables::Rows::kSome);
}

std::uint64_t updates_in(const OpenedCheckpoint& opened) {
  return whole_number<std::uint64_t>(part_in(opened).texts.at(kUpdates)).value_or(0);
}

}  // namespace

Snapshots::Snapshots(ps::VariableStore& store, UpdateCounter& counter, const SnapshotOptions& options)
    : options_(options),
      files_(options.files == nullptr ? real_files() : *options.files),
      store_(store),
      counter_(counter),
      directory_(options.folder, {.max_to_keep = kKept}, files_) {
  recovery_.server = options.server;
  recovery_.incarnation = random_number();
  recovery_.keeps_snapshots = true;
  directory_.prepare();
  restore();
  next_ = std::chrono::steady_clock::now() + options_.every;
  if (options_.every.count() > 0) thread_ = start_thread("lockstep:snap", [this](const std::stop_token& stop) { run(stop); });
}

void Snapshots::restore() {
  std::vector<std::string> damage;
  const auto opened = directory_.open_newest(damage, check_all);
  for (const auto& one : damage) log_warning(str(one, "; the snapshot before it is used"));
  const auto previous = counter_.previous();
  const auto saved = opened ? updates_in(*opened) : 0;
  recovery_.is_exact = previous ? previous->is_exact : !opened && damage.empty();
  recovery_.lost_updates = previous && previous->count > saved ? previous->count - saved : 0;
  counter_.count() = saved;
  if (opened) {
    recovery_.snapshot = opened->path;
    fill(*opened);
    taken_.emplace(saved, seen_ = store_.statistics().variables);
  }
  if (opened || recovery_.lost_updates > 0 || !recovery_.is_exact)
    log_warning(str("Server: ", options_.server, " ", describe(recovery_)));
}

void Snapshots::fill(const OpenedCheckpoint& opened) {
  const SavedVariables saved(opened.files, SavedVariables::Rows::kSome);
  const auto unseen = recovery_.lost_updates + (recovery_.is_exact ? 1 : kUnknown);
  for (const auto& [name, whole] : saved.all())
    for (const auto& slice : whole.slices) {
      const auto& description = slice.saved.description;
      store_.add(description)->change([&](at::Tensor& value, ps::UpdateRule* rule, std::uint64_t) {
        return fill_variable(store_.options().rules, description, whole, {&value, rule}) + unseen;
      });
    }
  for (const auto& [name, file] : opened.files)
    for (const auto& entry : file.header.tensors)
      if (entry.name == kClients && name.starts_with(kStatePrefix))
        store_.clients().load(
            std::string(file.bytes->bytes().substr(file.header.header_bytes + entry.begin, entry.end - entry.begin)));
}

void Snapshots::take() {
  const std::lock_guard lock(mu_);
  const auto now = std::pair<std::uint64_t, std::uint64_t>(counter_.count(), store_.statistics().variables);
  if (taken_ == now || (!taken_ && now.second == 0)) return;  // nothing is new, or there has been nothing yet
  std::uint64_t updates = 0;
  CheckpointImage image;
  image.manifest.number = directory_.next_number();
  image.manifest.created = utc_time();
  image.manifest.writer = build_name();
  image.manifest.parts.push_back({.name = kPart});
  image.write_others = [&](const std::string& folder, Manifest& manifest) {
    const auto beside = [&] {
      updates = counter_.count();
      return NamedTensors{{kClients, as_tensor(store_.clients().save())}};
    };
    auto& part = manifest.parts[0];
    for (auto& file : write_store(store_, files_, {folder, str("-", kPart, options_.suffix), {}, beside})) {
      part.server_files.push_back(file.name);
      manifest.files.push_back(std::move(file));
    }
    part.texts[kUpdates] = str(updates);
    manifest.info.step = static_cast<std::int64_t>(updates);
  };
  directory_.write(image);
  taken_.emplace(updates, now.second);
}

// Variables are waited for as long as more of them come: a model is made one by one.
bool Snapshots::is_due() {
  const auto now = std::chrono::steady_clock::now();
  const auto variables = store_.statistics().variables;
  const bool has_settled = std::exchange(seen_, variables) == variables;
  {
    const std::lock_guard lock(mu_);
    const bool are_new = variables != (taken_ ? taken_->second : 0);
    if (now < next_ && !(are_new && has_settled)) return false;
  }
  next_ = now + options_.every;
  return true;
}

void Snapshots::run(const std::stop_token& stop) {
  for (;;) {
    {
      std::unique_lock lock(mu_);
      wake_.wait_for(lock, stop, std::min<std::chrono::nanoseconds>(options_.every, kTick), [] { return false; });
    }
    if (stop.stop_requested()) return;
    try {
      if (is_due()) take();
    } catch (const std::exception& error) {
      log_warning(str("Server: ", options_.server, ": a snapshot was not written, and is tried again: ", error.what()));
    }
  }
}

}  // namespace lockstep::internal

#include "lockstep/checkpoint/checkpoint_manager.h"

#include <ATen/ATen.h>

#include <exception>
#include <functional>
#include <thread>
#include <utility>

#include "lockstep/base/error.h"
#include "lockstep/base/first_error.h"
#include "lockstep/base/log.h"
#include "lockstep/base/number.h"
#include "lockstep/base/str.h"
#include "lockstep/base/thread.h"
#include "lockstep/base/trace.h"
#include "lockstep/checkpoint/checkpoint_state.h"
#include "lockstep/checkpoint/staging.h"

namespace lockstep {

// Note [saving in the background]
// 1. save() waits for the thread of the save before, and throws what that failed with.
// 2. All workers collect their parts; the first one copies what is live into `staging`, which the thread of 1 no longer reads.
// 3. A thread writes the copy. It touches `plan`, `directory`, `staging` and `failure`, which the caller's thread leaves alone
//    until it has joined it.
struct CheckpointManager::State {
  State(Checkpoint checkpoint_, std::string path, const CheckpointManagerOptions& options)
      : checkpoint(std::move(checkpoint_)),
        is_async(options.async),
        directory(std::move(path), {options.max_to_keep, options.keep_best, options.better},
                  options.files == nullptr ? real_files() : *options.files) {}

  WorkerGroup* workers() const { return checkpoint.state_->workers(); }
  bool is_first() const { return checkpoint.state_->is_first(); }

  void join() {
    if (writer.joinable()) writer.join();
    if (failure) std::rethrow_exception(std::exchange(failure, nullptr));
  }

  void write() {
    directory.write(plan.image);
    plan.tensors.clear();  // nobody needs them any more
    plan.texts.clear();
  }

  void start(const std::function<void()>& work) {
    writer = start_thread("lockstep:save", [this, work](const std::stop_token&) {
      try {
        work();
      } catch (...) {
        failure = std::current_exception();
      }
    });
  }

  // Const after construction.
  Checkpoint checkpoint;
  const bool is_async;

  // Used by one of the caller's thread and `writer` at a time.
  CheckpointDirectory directory;
  internal::SavePlan plan;
  StagingMemory staging;
  std::exception_ptr failure;

  std::jthread writer;  // last: joined first
};

CheckpointManager::CheckpointManager(Checkpoint checkpoint, std::string directory, CheckpointManagerOptions options)
    : state_(std::make_unique<State>(std::move(checkpoint), std::move(directory), options)) {}

CheckpointManager::~CheckpointManager() {
  try {
    state_->join();
  } catch (...) {
    log_warning(str("the last checkpoint was not saved: ", describe(std::current_exception())));
  }
}

void CheckpointManager::wait() {
  internal::together(state_->workers(), "CheckpointManager::wait", [&] {
    state_->join();
    return std::string();
  });
}

void CheckpointManager::claim() {
  auto& s = *state_;
  wait();
  internal::together(s.workers(), "CheckpointManager::claim", [&] {
    if (s.is_first()) s.directory.prepare();
    return std::string();
  });
}

void CheckpointManager::prepare() {
  auto& s = *state_;
  if (!s.is_async) return;
  wait();
  const auto parts = s.checkpoint.state_->collect("CheckpointManager::prepare");
  const auto bytes = Checkpoint::State::live_bytes(parts);
  if (s.is_first()) s.start([&s, bytes] { s.staging.prepare(bytes); });
}

std::string CheckpointManager::save(const CheckpointInfo& info) {
  auto& s = *state_;
  wait();
  auto parts = s.checkpoint.state_->collect("CheckpointManager::save");
  const auto number = internal::together(s.workers(), "CheckpointManager::save to the disk", [&] {
    if (!s.is_first()) return std::string();
    s.directory.prepare();
    s.plan = s.checkpoint.state_->plan(std::move(parts), info);
    const auto mine = s.plan.image.manifest.number = s.directory.next_number();
    if (!s.is_async || s.checkpoint.state_->has_file_parts()) {
      s.write();
    } else {
      const trace::Span span("copy checkpoint", trace::Category::kCheckpoint);
      s.staging.copy(s.plan.live);
      s.start([&s] { s.write(); });
    }
    return str(mine);
  });
  return s.directory.path_of(*whole_number(number));
}

std::optional<RestoredCheckpoint> CheckpointManager::restore_latest(const RestoreOptions& options) {
  auto& s = *state_;
  wait();
  std::optional<OpenedCheckpoint> opened;
  const auto name = internal::together(s.workers(), "CheckpointManager::restore_latest", [&] {
    if (!s.is_first()) return std::string();
    std::vector<std::string> damage;
    opened =
        s.directory.open_newest(damage, [&](const OpenedCheckpoint& one) { s.checkpoint.state_->check_server_files(one); });
    if (!opened && damage.empty()) return std::string();
    if (!opened) throw Error(ErrorCode::kDataLoss, str("no checkpoint in '", directory(), "' is whole: ", join("; ", damage)));
    for (const auto& one : damage) log_warning(str(one, "; the checkpoint before it is used"));
    return opened->path.substr(directory().size());
  });
  if (name.empty()) return std::nullopt;
  internal::together(s.workers(), "CheckpointManager::restore_latest everywhere", [&] {
    if (!opened) opened = open_checkpoint(directory() + name);
    return std::string();
  });
  return s.checkpoint.state_->restore(*opened, options);
}

std::optional<RestoredCheckpoint> CheckpointManager::restore_best(const RestoreOptions& options) {
  wait();
  const auto path = internal::together(state_->workers(), "CheckpointManager::restore_best",
                                       [&] { return state_->is_first() ? best_checkpoint().value_or("") : std::string(); });
  if (path.empty()) return std::nullopt;
  return state_->checkpoint.read(path, options);
}

std::vector<std::string> CheckpointManager::checkpoints() const {
  std::vector<std::string> paths;
  for (const auto number : state_->directory.numbers()) paths.push_back(state_->directory.path_of(number));
  return paths;
}

std::optional<std::string> CheckpointManager::latest_checkpoint() const {
  auto paths = checkpoints();
  return paths.empty() ? std::nullopt : std::optional(std::move(paths.back()));
}

std::optional<std::string> CheckpointManager::best_checkpoint() {
  state_->join();
  const auto number = state_->directory.best();
  return number ? std::optional(state_->directory.path_of(*number)) : std::nullopt;
}

void CheckpointManager::remove_all() {
  wait();
  internal::together(state_->workers(), "CheckpointManager::remove_all", [&] {
    if (state_->is_first()) state_->directory.remove_all();
    return std::string();
  });
}

const std::string& CheckpointManager::directory() const noexcept { return state_->directory.path(); }

Checkpoint CheckpointManager::checkpoint() const { return state_->checkpoint; }

}  // namespace lockstep

#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <string>

#include "lockstep/checkpoint/checkpoint_directory.h"
#include "lockstep/ps/store.h"

// A store's snapshot as a checkpoint: see Note [snapshots of a parameter server].

namespace lockstep::internal {

// Numbers that belong to the same moment as the values, by name.
using SnapshotNumbers = std::map<std::string, std::uint64_t>;

// More operations than a period has, where they could not be counted.
inline constexpr std::uint64_t kUnseenUpdates = std::uint64_t{1} << 32;
inline constexpr const char* kSnapshotUpdates = "updates";  // every snapshot has it

struct SnapshotTarget {
  CheckpointDirectory& directory;
  FileLayer& files;
  std::string suffix = "";                             // of the files' names
  std::function<SnapshotNumbers()> numbers = nullptr;  // called at that moment
};
// Writes the next one: variables, the states of their optimizers, and the table of clients. Errors as FileLayer's: those before
// it stay.
void write_snapshot(ps::VariableStore& store, const SnapshotTarget& target);

// 0: it has none of this name. Throws kDataLoss for what is no snapshot.
std::uint64_t number_in(const OpenedCheckpoint& opened, const std::string& name);
// Reads all of it. Throws kDataLoss when it is damaged.
void check_snapshot(const OpenedCheckpoint& opened);

// Fills a new store. `unseen` is added to all versions. Throws kUnavailable when there is no memory for it.
void fill_store(ps::VariableStore& store, const OpenedCheckpoint& opened, std::uint64_t unseen);

}  // namespace lockstep::internal

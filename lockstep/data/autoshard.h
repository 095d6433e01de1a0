#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "lockstep/data/dataset.h"

namespace lockstep::data {

// What worker `index` of `workers` reads of a dataset, by its auto shard policy, before batches are divided between replicas:
//
//   FILE  of every list of files, file index, index + workers, ...: the list of a reader, or the elements of which flat_map or
//         interleave make readers. File names that are shuffled are shuffled after that. kNotFound for a dataset without files;
//         fewer files than workers are kInvalidArgument with the first element, on the workers that have one.
//   DATA  elements index, index + workers, ... of the whole pipeline, counted before a prefetch() at its end. Fewer elements
//   than
//         workers are kInvalidArgument likewise.
//   AUTO  FILE where all of the data comes from files, else DATA.
//   HINT  shard(kShardHint, ...) becomes shard(workers, index).
//   OFF   everything.
//
// Throws kInvalidArgument unless 0 <= index < workers.
Dataset auto_shard(const Dataset& dataset, std::int64_t workers, std::int64_t index);

namespace internal {

// FILE alone; null for a dataset not all of which comes from files. One worker gets the dataset as it is. Throws
// kInvalidArgument at once when it is known that there are fewer files than workers.
NodePtr shard_files(const NodePtr& node, std::int64_t workers, std::int64_t index);

// Appends the elements of a dataset of file names. False, and nothing appended, where they are not known without reading a
// file, or are no strings.
bool names_of_files(const NodePtr& node, std::vector<std::string>& names);

// kNotFound, for the policy FILE.
[[noreturn]] void throw_no_files(const Dataset& dataset);

// HINT alone.
NodePtr shard_hints(const NodePtr& node, std::int64_t workers, std::int64_t index);

}  // namespace internal
}  // namespace lockstep::data

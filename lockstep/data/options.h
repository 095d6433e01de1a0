#pragma once

#include <cstdint>
#include <iosfwd>
#include <optional>

// The options of datasets and of their distribution.

namespace lockstep {

// How the input is divided between workers, and with it how batches are divided between replicas.
enum class AutoShardPolicy {
  kOff = -1,  // every worker reads everything
  kAuto = 0,  // by file where there are files, else by data
  kFile = 1,
  kData = 2,
  kHint = 3,  // where the pipeline says shard(kShardHint, ...)
};

enum class InputReplicationMode { kPerWorker, kPerReplica };

struct InputOptions {
  // Whether replicas find their part on their own device. Absent means yes.
  std::optional<bool> experimental_fetch_to_device = std::nullopt;
  InputReplicationMode experimental_replication_mode = InputReplicationMode::kPerWorker;
  bool experimental_place_dataset_on_device = false;
  // Steps prepared ahead for devices other than the CPU; 0: none.
  int experimental_per_replica_buffer_size = 1;
  // Count what every replica gets, for DistributedIterator::shard_report(). Every row is hashed twice.
  bool shard_report = false;
};

// Throw kUnimplemented or kInvalidArgument for combinations that the call does not know.
void validate_for_distribute_dataset(const InputOptions& options);
void validate_for_distribute_from_function(const InputOptions& options);

// Told to the function given to distribute_datasets_from_function.
struct InputContext {
  int num_input_pipelines = 1;
  int input_pipeline_id = 0;
  int num_replicas_in_sync = 1;

  // Throws kInvalidArgument unless the global batch divides evenly.
  std::int64_t get_per_replica_batch_size(std::int64_t global_batch_size) const;
};

std::ostream& operator<<(std::ostream& out, const InputContext& context);

// Told to the function given to experimental_distribute_values_from_function.
struct ValueContext {
  int replica_id_in_sync_group = 0;
  int num_replicas_in_sync = 1;
};

std::ostream& operator<<(std::ostream& out, const ValueContext& context);

namespace data {

struct Options {
  AutoShardPolicy auto_shard_policy = AutoShardPolicy::kAuto;
};

}  // namespace data
}  // namespace lockstep

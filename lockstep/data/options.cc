#include "lockstep/data/options.h"

#include <ostream>

#include "lockstep/base/error.h"
#include "lockstep/base/str.h"

namespace lockstep {
namespace {

void validate_buffer_size(const InputOptions& options) {
  if (options.experimental_per_replica_buffer_size < 0)
    throw Error(ErrorCode::kInvalidArgument, str("InputOptions: experimental_per_replica_buffer_size is ",
                                                 options.experimental_per_replica_buffer_size, "; it must be 0 or more"));
}

}  // namespace

void validate_for_distribute_dataset(const InputOptions& options) {
  if (options.experimental_replication_mode == InputReplicationMode::kPerReplica)
    throw Error(ErrorCode::kUnimplemented,
                "experimental_distribute_dataset: InputReplicationMode::kPerReplica is only for "
                "distribute_datasets_from_function, where every replica can have a dataset of its own");
  validate_for_distribute_from_function(options);
}

void validate_for_distribute_from_function(const InputOptions& options) {
  validate_buffer_size(options);
  if (!options.experimental_place_dataset_on_device) return;
  if (options.experimental_replication_mode != InputReplicationMode::kPerReplica)
    throw Error(ErrorCode::kInvalidArgument,
                "InputOptions: experimental_place_dataset_on_device needs InputReplicationMode::kPerReplica");
  if (options.experimental_fetch_to_device.value_or(true))
    throw Error(ErrorCode::kInvalidArgument,
                "InputOptions: experimental_place_dataset_on_device and experimental_fetch_to_device (on unless it is set to "
                "false) exclude each other");
}

std::int64_t InputContext::get_per_replica_batch_size(std::int64_t global_batch_size) const {
  if (num_replicas_in_sync < 1)
    throw Error(ErrorCode::kInvalidArgument,
                str("InputContext: num_replicas_in_sync is ", num_replicas_in_sync, "; it must be at least 1"));
  if (global_batch_size % num_replicas_in_sync != 0)
    throw Error(ErrorCode::kInvalidArgument, str("the global batch size ", global_batch_size, " is not divisible by the ",
                                                 num_replicas_in_sync, " replicas in sync; choose a multiple of it"));
  return global_batch_size / num_replicas_in_sync;
}

std::ostream& operator<<(std::ostream& out, const InputContext& context) {
  return out << "tf.distribute.InputContext(input pipeline id " << context.input_pipeline_id
             << ", total: " << context.num_input_pipelines << ")";
}

std::ostream& operator<<(std::ostream& out, const ValueContext& context) {
  return out << "tf.distribute.ValueContext(replica id " << context.replica_id_in_sync_group
             << ", total replicas in sync: " << context.num_replicas_in_sync << ")";
}

}  // namespace lockstep

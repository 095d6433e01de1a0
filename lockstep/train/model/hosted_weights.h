#pragma once

#include <map>
#include <string>

#include "lockstep/checkpoint/trackable.h"
#include "lockstep/fwd.h"
#include "lockstep/variable/module_replicas.h"
#include "lockstep/variable/named_variables.h"

// Weights of a hosted model that has tables (HostedEmbedding): the coordinator's copy has all else, and the tables are on the
// servers, larger perhaps than what this process has of memory. In files they stand as the weights of a module in one process.

namespace lockstep::internal {

// Whether the module has embeddings whose rows are on servers.
bool has_tables(const torch::nn::Module& module);

// The copy's tensors as they are here, and the tables as they are on the servers, in one safetensors file. Tables come in
// pieces of some MB.
void save_with_tables(const std::string& path, const std::shared_ptr<ModuleReplicas>& module, const NamedVariables& tables,
                      const std::map<std::string, std::string>& metadata);

// Weights for the copy, and for its tables.
class WeightsWithTables {
 public:
  // Not copied: of a file, views. Throws kInvalidArgument, naming `what` and all that is missing, unexpected or of another
  // shape.
  WeightsWithTables(const std::string& what, const CheckpointPart& weights, std::shared_ptr<ModuleReplicas> module,
                    NamedVariables tables);
  // Into the copy, and the servers' tables. The servers' other variables have yet to be told.
  void load();

 private:
  // Const after construction.
  const std::shared_ptr<ModuleReplicas> module_;
  const NamedVariables tables_;

  CheckpointPart of_copy_;
  CheckpointPart of_tables_;
};

}  // namespace lockstep::internal

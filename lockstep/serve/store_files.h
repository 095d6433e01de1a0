#pragma once

#include <string>
#include <vector>

#include "lockstep/checkpoint/checkpoint_files.h"
#include "lockstep/checkpoint/server_files.h"
#include "lockstep/ps/checkpoint_messages.h"
#include "lockstep/ps/store.h"

// A parameter server's variables as files: see Note [files of parameter servers].

namespace lockstep::internal {

struct StoreTarget {
  std::string folder;
  std::string suffix;                   // of the files' names
  std::vector<std::string> names = {};  // of whole variables; none: all
  // What else belongs to the same moment, for the file of states.
  std::function<NamedTensors()> beside = nullptr;
};

// Writes them while no request changes anything: as long as the system takes to copy them into its memory. Returns when they
// are on the disk. Throws kFailedPrecondition when the folder is not there; errors as FileLayer's.
std::vector<Manifest::File> write_store(ps::VariableStore& store, FileLayer& files, const StoreTarget& target);

// Whether the store's variables of these whole names (none: all) are in `saved`, in their shapes and dtypes and with the state
// of their optimizers.
ps::RestoreFilesReply compare_store(const ps::VariableStore& store, const SavedVariables& saved,
                                    const std::vector<std::string>& names);
// Then they get these values and states, and versions above all that they had; requests that change something wait.
void restore_store(ps::VariableStore& store, const SavedVariables& saved, const std::vector<std::string>& names);

// One variable gets what `whole` has of its rows; returns the highest version of the parts that these came from.
std::uint64_t fill_variable(const ps::RuleFactory& rules, const ps::Description& description,
                            const SavedVariables::Whole& whole, std::pair<at::Tensor*, ps::UpdateRule*> into);

}  // namespace lockstep::internal

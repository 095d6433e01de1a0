#pragma once

#include <map>
#include <string>

#include "lockstep/ps/rpc.h"

namespace lockstep {

class FileLayer;
namespace ps {
class VariableStore;
}

namespace internal {

// What a parameter server does with files when the coordinator asks: see ps/checkpoint_messages.h. Both must outlive the
// methods.
std::map<std::string, ps::Method> checkpoint_methods(ps::VariableStore& store, FileLayer& files);

}  // namespace internal
}  // namespace lockstep

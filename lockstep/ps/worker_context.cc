#include "lockstep/ps/worker_context.h"

#include "lockstep/base/error.h"
#include "lockstep/base/first_error.h"
#include "lockstep/base/str.h"
#include "lockstep/ps/remote_function.h"

namespace lockstep {

std::shared_ptr<void> WorkerContext::find_resource(std::uint64_t id, std::type_index type) const {
  const auto found = resources_.find(id);
  if (found == resources_.end())
    throw Error(ErrorCode::kInvalidArgument, str("per-worker value ", id, " was not made on ", task_.name,
                                                 ", but a closure takes it: is it of another coordinator?"));
  const auto& resource = found->second;
  if (resource.failure)
    throw Error(ErrorCode::kFailedPrecondition,
                str("an input of the closure could not be made on ", task_.name, ": ", describe(resource.failure)));
  if (resource.type != type)
    throw Error(ErrorCode::kInvalidArgument, str("a closure takes a ", ps::readable_name(type.name()),
                                                 ", but was given a per-worker ", ps::readable_name(resource.type.name())));
  return resource.object;
}

}  // namespace lockstep

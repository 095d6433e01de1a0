#include "lockstep/serve/checkpoint_service.h"

#include <ATen/ATen.h>

#include "lockstep/base/error.h"
#include "lockstep/base/str.h"
#include "lockstep/ps/fields.h"
#include "lockstep/serve/store_files.h"

namespace lockstep::internal {
namespace {

// Names come from a request: nothing outside the folder is opened.
void require_name(const std::string& name) {
  if (name.empty() || name[0] == '.' || name.find('/') != std::string::npos || name.find('\0') != std::string::npos)
    throw Error(ErrorCode::kInvalidArgument, str("'", name, "' is not the name of a file in a checkpoint's folder"));
}

ps::WriteFilesReply write(ps::VariableStore& store, FileLayer& files, const ps::WriteFilesRequest& request) {
  require_name("a" + request.suffix);
  ps::WriteFilesReply reply;
  for (const auto& file : write_store(store, files, {request.folder, request.suffix, request.names}))
    reply.files.push_back({file.name, file.bytes, file.crc32c});
  return reply;
}

void check(const ps::CheckFilesRequest& request) {
  for (const auto& file : request.files) {
    require_name(file.name);
    check_checkpoint_file(request.folder, {file.name, file.bytes, file.crc32c});
  }
}

ps::RestoreFilesReply restore(ps::VariableStore& store, const ps::RestoreFilesRequest& request) {
  std::map<std::string, OpenedCheckpoint::File> files;
  for (const auto& name : request.files) {
    require_name(name);
    files.emplace(name, open_checkpoint_file(request.folder, name));
  }
  const SavedVariables saved(files);
  auto reply = compare_store(store, saved, request.names);
  if (!request.is_trial && reply.problems.empty()) restore_store(store, saved, request.names);
  return reply;
}

}  // namespace

std::map<std::string, ps::Method> checkpoint_methods(ps::VariableStore& store, FileLayer& files) {
  return {
      {ps::methods::kWriteFiles, {[&](ps::Incoming& request, ps::Outgoing& reply) {
         reply.fields = ps::to_bytes(write(store, files, ps::from_bytes<ps::WriteFilesRequest>(request.fields())));
       }}},
      {ps::methods::kCheckFiles,
       {[](ps::Incoming& request, ps::Outgoing&) { check(ps::from_bytes<ps::CheckFilesRequest>(request.fields())); }}},
      {ps::methods::kRestoreFiles, {[&](ps::Incoming& request, ps::Outgoing& reply) {
         reply.fields = ps::to_bytes(restore(store, ps::from_bytes<ps::RestoreFilesRequest>(request.fields())));
       }}},
  };
}

}  // namespace lockstep::internal

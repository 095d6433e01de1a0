#include "lockstep/checkpoint/server_part.h"

#include <ATen/ATen.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <set>

#include "lockstep/base/deadline.h"
#include "lockstep/base/error.h"
#include "lockstep/base/str.h"
#include "lockstep/checkpoint/file_layer.h"
#include "lockstep/checkpoint/file_part.h"
#include "lockstep/checkpoint/server_files.h"
#include "lockstep/ps/ask_all.h"
#include "lockstep/ps/checkpoint_messages.h"
#include "lockstep/ps/connections.h"
#include "lockstep/ps/fields.h"
#include "lockstep/strategy/parameter_server_strategy.h"

namespace lockstep {
namespace {

using Files = std::map<std::string, OpenedCheckpoint::File>;

constexpr std::chrono::minutes kPatience{30};  // for a server that writes or reads all that it has

// As other processes find it.
std::string absolute(const std::string& path) {
  if (path.starts_with('/')) return path;
  std::array<char, 4096> here{};
  if (getcwd(here.data(), here.size()) == nullptr)
    throw Error(ErrorCode::kFailedPrecondition, str("the folder of '", path, "' has no name; give the path from '/' on"));
  return str(here.data(), "/", path);
}

class ServerPart : public FilePart {
 public:
  ServerPart(std::shared_ptr<ps::Connections> connections, std::vector<std::string> names)
      : connections_(std::move(connections)), names_(std::move(names)) {}

  void write(const std::string& folder, const std::string& name, Manifest& manifest) override {
    auto* const part = &*std::ranges::find(manifest.parts, name, &Manifest::Part::name);
    std::vector<std::string> given_up;
    const auto replies = ask<ps::WriteFilesReply>(ps::methods::kWriteFiles, [&](std::size_t server, int tries) {
      // A server that was replaced, and only seems to be lost, may still write under the name before.
      const auto suffix = [&](int number) { return str("-", name, "-ps-", server, number == 0 ? "" : str("-", number + 1)); };
      if (tries > 0) given_up.push_back(suffix(tries - 1));
      return ps::to_bytes(ps::WriteFilesRequest{absolute(folder), suffix(tries), names_});
    });
    for (std::size_t server = 0; server < replies.size(); ++server)
      for (const auto& file : replies[server].files) {
        require_seen(folder, file, server);
        manifest.files.push_back({file.name, file.bytes, file.crc32c});
        part->server_files.push_back(file.name);
      }
    for (const auto& suffix : given_up) remove_files(folder, suffix);
  }

  // Each server reads some of the files, whoever wrote them.
  void check(const OpenedCheckpoint& opened, const std::string& name) override {
    const auto* const part = opened.manifest.find_part(name);
    if (part == nullptr) return;
    std::vector<ps::CheckFilesRequest> shares(connections_->servers.size(), {absolute(opened.path), {}});
    std::size_t next = 0;
    for (const auto& file : part->server_files)
      if (const auto* const facts = opened.manifest.find_file(file))
        shares[next++ % shares.size()].files.push_back({facts->name, facts->bytes, facts->crc32c});
      else throw Error(ErrorCode::kDataLoss, str("'", opened.path, "': the manifest does not know its file '", file, "'"));
    ask<std::string>(ps::methods::kCheckFiles, [&](std::size_t server, int) { return ps::to_bytes(shares[server]); });
  }

  std::vector<std::string> problems_of(const OpenedCheckpoint& opened, const std::string& name) override {
    const auto files = files_of(opened, name);
    if (files.empty()) return {"the checkpoint has no file of values for it"};
    std::set<std::string> problems;
    std::set<std::string> found;
    for (const auto& reply : restore(opened, files, true)) {
      problems.insert(reply.problems.begin(), reply.problems.end());
      found.insert(reply.found.begin(), reply.found.end());
    }
    const internal::SavedVariables saved(files);
    for (const auto& [whole, slices] : saved.all())
      if (!found.contains(whole)) problems.insert(str(whole, ": unexpected"));
    for (const auto& whole : names_)
      if (!found.contains(whole) && !problems.contains(str(whole, ": missing")))
        problems.insert(str(whole, ": is on no server"));
    return {problems.begin(), problems.end()};
  }

  void restore_from(const OpenedCheckpoint& opened, const std::string& name) override {
    for (const auto& reply : restore(opened, files_of(opened, name), false))
      if (!reply.problems.empty())
        throw Error(ErrorCode::kFailedPrecondition,
                    str("'", opened.path, "' no longer fits the variables of a server: ", join("; ", reply.problems)));
  }

 private:
  // What a server that was lost may have left.
  static void remove_files(const std::string& folder, const std::string& suffix) {
    for (const auto* const prefix : {internal::kWeightsPrefix, internal::kStatePrefix}) try {
        real_files().remove(str(folder, "/", prefix, suffix, ".safetensors"));
      } catch (const Error& error) {
        if (error.code() != ErrorCode::kNotFound) throw;
      }
  }

  static Files files_of(const OpenedCheckpoint& opened, const std::string& name) {
    Files files;
    const auto* const part = opened.manifest.find_part(name);
    if (part == nullptr) return files;
    auto names = part->server_files;
    if (names.empty() && !part->weights_file.empty()) names = {part->weights_file};
    for (const auto& file : names)
      if (const auto found = opened.files.find(file); found != opened.files.end()) files.insert(*found);
    return files;
  }

  std::vector<ps::RestoreFilesReply> restore(const OpenedCheckpoint& opened, const Files& files, bool is_trial) const {
    ps::RestoreFilesRequest request{absolute(opened.path), {}, names_, is_trial};
    for (const auto& [name, file] : files) request.files.push_back(name);
    return ask<ps::RestoreFilesReply>(ps::methods::kRestoreFiles, [&](std::size_t, int) { return ps::to_bytes(request); });
  }

  // Throws the first error.
  template <typename Reply>
  std::vector<Reply> ask(const char* method, const std::function<std::string(std::size_t server, int tries)>& request) const {
    std::vector<Reply> replies;
    for (auto& fields : ps::ask_all(*connections_, {method, request}, Deadline::after(kPatience)))
      if constexpr (std::is_same_v<Reply, std::string>) replies.push_back(std::move(fields));
      else replies.push_back(ps::from_bytes<Reply>(fields));
    return replies;
  }

  // The server may have written into another machine's folder of the same name.
  void require_seen(const std::string& folder, const ps::FileFacts& file, std::size_t server) const {
    std::uint64_t bytes = 0;
    try {
      bytes = data::MappedFile(str(folder, "/", file.name)).size();
    } catch (const Error& error) {
      if (error.code() != ErrorCode::kNotFound) throw;
    }
    if (bytes == file.bytes) return;
    throw Error(ErrorCode::kFailedPrecondition,
                str("'", folder, "/", file.name, "', which ", connections_->servers[server]->name(),
                    " wrote, is not seen here; checkpoints of parameter servers need a folder that all tasks share"));
  }

  // Const after construction.
  const std::shared_ptr<ps::Connections> connections_;
  const std::vector<std::string> names_;
};

}  // namespace

std::shared_ptr<Trackable> server_part(const ParameterServerStrategy& strategy) {
  return std::make_shared<ServerPart>(strategy.connections(), std::vector<std::string>());
}

std::shared_ptr<Trackable> server_part(std::shared_ptr<ps::Connections> connections, std::vector<std::string> names) {
  require(connections != nullptr && !names.empty(), "server_part: name the variables, and the servers that have them");
  return std::make_shared<ServerPart>(std::move(connections), std::move(names));
}

}  // namespace lockstep

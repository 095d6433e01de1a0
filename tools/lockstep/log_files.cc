#include "tools/lockstep/log_files.h"

#include <filesystem>
#include <system_error>

#include "lockstep/base/error.h"
#include "lockstep/base/str.h"

namespace lockstep::tool {

void make_log_dir(const std::string& path) {
  std::error_code error;
  if (!path.empty()) std::filesystem::create_directories(path, error);
  if (error) throw Error(ErrorCode::kInvalidArgument, str("cannot make the folder '", path, "' (", error.message(), ")"));
}

std::string log_file(const std::string& folder, const Task& task, int attempt) {
  return folder.empty() ? "" : str(folder, "/", task.type, "_", task.index, ".attempt_", attempt, ".log");
}

}  // namespace lockstep::tool

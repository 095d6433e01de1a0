#include "lockstep/data/io/whole_file.h"

#include <unistd.h>

#include <atomic>
#include <cerrno>
#include <cstdio>

#include "lockstep/base/errno_text.h"
#include "lockstep/base/error.h"
#include "lockstep/base/str.h"
#include "lockstep/data/io/output_file.h"

namespace lockstep::data {
namespace {

// Other processes and threads may write the same file at this moment.
std::string name_beside(const std::string& path) {
  static std::atomic<int> count = 0;
  return str(path, ".part-", getpid(), "-", count++);
}

}  // namespace

void write_whole_file(const std::string& path, const std::vector<std::string_view>& parts) {
  const auto beside = name_beside(path);
  try {
    OutputFile file(beside);
    for (const auto& part : parts) file.write(part);
    file.close_on_disk();  // else the system may write the new name to the disk before the bytes
    if (std::rename(beside.c_str(), path.c_str()) != 0)
      throw Error(ErrorCode::kUnavailable, str("the file '", path, "' cannot be written: ", errno_text(errno)));
  } catch (...) {
    std::remove(beside.c_str());
    throw;
  }
}

}  // namespace lockstep::data

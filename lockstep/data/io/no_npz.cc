#include "lockstep/base/error.h"
#include "lockstep/base/str.h"
#include "lockstep/data/io/npz.h"

// In place of npz.cc where minizip was not found.

namespace lockstep::data::internal {

std::vector<NpzArray> read_npz_arrays(const std::string& path) {
  throw Error(
      ErrorCode::kUnimplemented,
      str("read_npz: '", path, "' cannot be read: Lockstep was built without minizip; install libminizip-dev and build again"));
}

}  // namespace lockstep::data::internal

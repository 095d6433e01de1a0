#pragma once

#include <memory>
#include <string>
#include <vector>

#include "lockstep/data/io/npy.h"

// NumPy's .npz: a zip archive of .npy files, stored or deflated.

namespace lockstep::data::internal {

struct NpzArray {
  std::string name = "";  // without ".npy"
  NpyHeader header = {};
  std::shared_ptr<char> values = nullptr;  // header.data_bytes of them
};

// All arrays, in the archive's order. Memory grows with what is really there, up to what an array's header says. Throws
// kNotFound when there is no such file, kFailedPrecondition when it may not be read, kDataLoss when it is damaged or holds
// something else than arrays, kUnimplemented for what NumPy does not write (encryption, other compressions), for arrays that
// parse_npy_header() refuses, and where Lockstep was built without minizip.
std::vector<NpzArray> read_npz_arrays(const std::string& path);

}  // namespace lockstep::data::internal

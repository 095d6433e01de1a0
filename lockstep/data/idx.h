#pragma once

#include <cstdint>
#include <string>
#include <vector>

// IDX, the format of MNIST and its relatives: a magic number, the sizes of the dimensions, then the bytes.

namespace lockstep::data {

struct IdxArray {
  std::vector<std::int64_t> sizes = {};
  std::vector<std::uint8_t> values = {};  // row-major
};

// Reads a file of unsigned bytes, gzipped or plain. Throws kNotFound when it cannot be opened, kDataLoss when it is not
// IDX, is damaged, or is shorter or longer than its header says.
IdxArray read_idx(const std::string& path);

}  // namespace lockstep::data

#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <string>
#include <string_view>
#include <vector>

namespace lockstep {

// One tensor of a safetensors file: bytes [begin, end) of what follows the header.
struct SafetensorsEntry {
  std::string name;
  std::string dtype;  // "F32"
  std::vector<std::int64_t> shape;
  std::uint64_t begin = 0;
  std::uint64_t end = 0;
};

struct SafetensorsHeader {
  std::vector<SafetensorsEntry> tensors;  // in the order of their bytes, which follow each other without gaps
  std::map<std::string, std::string> metadata;
  std::uint64_t header_bytes = 0;  // before the first tensor's bytes
};

// Bytes of one element of F64 F32 F16 BF16 I64 I32 I16 I8 U8 BOOL; 0 for any other name.
std::size_t safetensors_element_bytes(std::string_view dtype) noexcept;

// Reads the header at the beginning of `bytes`, the whole file, and checks everything that it says against the file's size.
// `what` names the file. Throws kDataLoss, naming the tensor: a file that is cut, text that is not JSON, names that come twice,
// places that overlap, leave gaps or lie outside, sizes that do not fit the shape; kInvalidArgument for an element type that is
// not in the list above.
SafetensorsHeader parse_safetensors(std::string_view bytes, const std::string& what);

// The beginning of a file with these tensors, whose places are set here in their order; its size is a multiple of 64, so that
// mapped tensors are aligned. Throws kInvalidArgument for names that come twice, for "__metadata__", and for texts that are not
// UTF-8.
std::string make_safetensors_header(std::vector<SafetensorsEntry>& tensors,
                                    const std::map<std::string, std::string>& metadata = {});

}  // namespace lockstep

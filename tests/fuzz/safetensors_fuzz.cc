#include <vector>

#include "lockstep/checkpoint/manifest.h"
#include "lockstep/checkpoint/safetensors.h"
#include "tests/fuzz/fuzz.h"

// The header of a file of tensors: what is accepted can be written and read again. And the same bytes as a manifest.
extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  lockstep::fuzz::expect_typed_errors(data, size, [](const std::string& bytes) {
    auto header = lockstep::parse_safetensors(bytes, "the input");
    const auto again = lockstep::make_safetensors_header(header.tensors, header.metadata);
    const auto data_bytes = bytes.size() - header.header_bytes;
    if (lockstep::parse_safetensors(again + std::string(data_bytes, '\0'), "again").tensors.size() != header.tensors.size())
      __builtin_trap();
  });
  return lockstep::fuzz::expect_typed_errors(data, size, [](const std::string& bytes) {
    const auto manifest = lockstep::Manifest::parse(bytes, "the input");
    if (lockstep::Manifest::parse(manifest.text(), "again").text() != manifest.text()) __builtin_trap();
  });
}

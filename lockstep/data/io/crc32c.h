#pragma once

#include <cstddef>
#include <cstdint>

namespace lockstep::data {

// Castagnoli's checksum; the processor's own instruction where it has one.
std::uint32_t crc32c(const void* data, std::size_t bytes) noexcept;

// Of two pieces that follow each other, the second of `second_bytes`.
std::uint32_t joined_crc32c(std::uint32_t first, std::uint32_t second, std::uint64_t second_bytes) noexcept;

// As TFRecord files keep it: a checksum of data that has checksums in it would be weak.
std::uint32_t masked_crc32c(const void* data, std::size_t bytes) noexcept;

namespace internal {

// What processors without the instruction use.
std::uint32_t crc32c_by_table(const void* data, std::size_t bytes) noexcept;

}  // namespace internal
}  // namespace lockstep::data

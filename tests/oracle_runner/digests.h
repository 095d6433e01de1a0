#pragma once

#include <cstdint>
#include <string>
#include <string_view>

// What the oracle's files tell of bytes.

namespace lockstep::oracle {

std::string base64_of(std::string_view bytes);
std::string bytes_of_base64(std::string_view text);

// 64 hexadecimal digits.
std::string sha256_of(std::string_view bytes);

std::uint32_t crc32_of(std::string_view bytes);

}  // namespace lockstep::oracle

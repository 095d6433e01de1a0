#pragma once

#include <cstddef>
#include <cstdint>
#include <string>

#include "lockstep/base/error.h"

// A fuzz target gives libFuzzer's bytes to one reader. Typed errors are what bad input deserves; anything else ends the run.

namespace lockstep::fuzz {

template <typename Body>
int expect_typed_errors(const std::uint8_t* data, std::size_t size, Body&& body) {
  try {
    body(std::string(reinterpret_cast<const char*>(data), size));
  } catch (const Error&) {
  }
  return 0;
}

}  // namespace lockstep::fuzz

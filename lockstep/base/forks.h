#pragma once

#include <cstdint>

namespace lockstep {

// How many forks lie between the process that first asked and this one. Another number than before: the threads that
// were started then do not exist here.
std::uint64_t forks() noexcept;

}  // namespace lockstep

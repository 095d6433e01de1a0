#pragma once

#include <cstdint>

#include "lockstep/fwd.h"

namespace lockstep {
class Strategy;
}

namespace bench {

// All-reduce of one float to 64 MB inside run(), in place and not, in turns with a peer that does only what cannot be
// left out: two threads, the same buffers, each adds its half and stores it to both. Prints a JSON line for each.
// Throws std::runtime_error when a single element of a single sum is wrong.
void bench_all_reduce(lockstep::Strategy& strategy, int rounds);

}  // namespace bench

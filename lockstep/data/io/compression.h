#pragma once

namespace lockstep::data {

enum class Compression { kNone, kGzip, kZlib };

namespace internal {

// zlib's name for what it is to read or write.
int window_bits(Compression compression);

}  // namespace internal
}  // namespace lockstep::data

#pragma once

#include <string_view>

namespace lockstep::data {

enum class Compression { kNone, kGzip, kZlib };

// As tf.data spells them: "", "GZIP", "ZLIB". Throws kInvalidArgument for another one.
Compression compression_named(std::string_view name);

namespace internal {

// zlib's name for what it is to read or write.
int window_bits(Compression compression);

}  // namespace internal
}  // namespace lockstep::data

#include "lockstep/data/io/compression.h"

#include <zlib.h>

namespace lockstep::data {

int internal::window_bits(Compression compression) { return MAX_WBITS + (compression == Compression::kGzip ? 16 : 0); }

}  // namespace lockstep::data

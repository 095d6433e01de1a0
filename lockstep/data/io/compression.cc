#include "lockstep/data/io/compression.h"

#include <zlib.h>

#include "lockstep/base/error.h"
#include "lockstep/base/str.h"

namespace lockstep::data {

Compression compression_named(std::string_view name) {
  if (name.empty()) return Compression::kNone;
  if (name == "GZIP") return Compression::kGzip;
  if (name == "ZLIB") return Compression::kZlib;
  throw Error(ErrorCode::kInvalidArgument, str("the compression '", name, "' is not known; there are '', 'GZIP' and 'ZLIB'"));
}

int internal::window_bits(Compression compression) { return MAX_WBITS + (compression == Compression::kGzip ? 16 : 0); }

}  // namespace lockstep::data

#pragma once

#include <string>

#include "lockstep/observe/event_writer.h"

namespace lockstep::internal {

// A PNG file of an image, by zlib alone: every build has it. Throws kInvalidArgument for a size below 1, for other channels
// than 1, 3 and 4, and for another number of bytes.
std::string plain_png(const ImageView& image);

}  // namespace lockstep::internal

#pragma once

#include <string>
#include <string_view>

#include "lockstep/data/io/pixels.h"

namespace lockstep::data::internal {

// channels: 0 as in the file (1, 3 or 4; grey with opacity gives 4), 1 grey, 3 colour; for these opacity is dropped. Palettes
// and 1, 2, 4 and 16 bits become 8 bits. Throws kInvalidArgument for other channels, kDataLoss for damaged bytes and images of
// more than kMostPixels, kUnimplemented where Lockstep was built without libpng.
Pixels read_png(std::string_view bytes, int channels);

// Of an image with 1, 3 or 4 channels. Throws kInvalidArgument for others.
std::string write_png(const Pixels& image);

}  // namespace lockstep::data::internal

#pragma once

#include <string>
#include <string_view>

#include "lockstep/data/io/pixels.h"

namespace lockstep::data::internal {

// channels: 0 as in the file (1 or 3), 1 grey, 3 colour. Throws kInvalidArgument for others, kDataLoss for damaged bytes and
// images of more than kMostPixels, kUnimplemented where Lockstep was built without TurboJPEG.
//
// Note [JPEG warnings]
// Many files in use have small faults that show in no pixel: a wrong version, bytes between the image and its end. The library
// only warns of them, and so do we, once a message. It also only warns of an image that is cut off, whose rest it paints
// grey: that is kDataLoss.
Pixels read_jpeg(std::string_view bytes, int channels);

// Of an image with 1 or 3 channels. Quality: 1 to 100. Throws kInvalidArgument for others.
std::string write_jpeg(const Pixels& image, int quality);

}  // namespace lockstep::data::internal

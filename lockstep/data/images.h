#pragma once

#include <string>
#include <string_view>

#include "lockstep/fwd.h"

// JPEG and PNG images as tensors: uint8 [channels, height, width]. Thread-safe.
//
// JPEG needs libjpeg-turbo (Debian: libturbojpeg0-dev), PNG libpng (libpng-dev) when Lockstep is built; without them these
// throw kUnimplemented.

namespace lockstep::data {

// channels: 0 as in the file (1: grey, 3: colour, 4: colour with opacity), 1 grey, 3 colour. Opacity that is not wanted is
// dropped. 16 bits become 8, palettes colours, and colours for print (CMYK) red, green and blue. Throws kInvalidArgument for
// another number of channels; kDataLoss, with the library's words, for bytes that are damaged or cut off, and for more than
// 2^28 pixels, before memory is taken for them.
at::Tensor decode_jpeg(std::string_view bytes, int channels = 0);
at::Tensor decode_png(std::string_view bytes, int channels = 0);
// Either of them, by the first bytes. Throws kDataLoss when they are those of neither.
at::Tensor decode_image(std::string_view bytes, int channels = 0);

// The bytes of a file with this image: uint8 [channels, height, width], with 1, 3 or, for PNG, 4 channels. Throws
// kInvalidArgument for other tensors, and a quality outside [1, 100].
std::string encode_jpeg(const at::Tensor& image, int quality = 95);
std::string encode_png(const at::Tensor& image);

}  // namespace lockstep::data

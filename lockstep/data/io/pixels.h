#pragma once

#include <cstdint>
#include <string>
#include <vector>

namespace lockstep::data::internal {

// An image: rows from the top, pixels from the left, the channels of a pixel side by side. 1 channel: grey; 3: red, green and
// blue; 4: with opacity.
struct Pixels {
  int width = 0;
  int height = 0;
  int channels = 0;
  std::vector<std::uint8_t> bytes = {};
};

// An image's header may lie: no memory is taken for more.
constexpr std::int64_t kMostPixels = std::int64_t{1} << 28;

// These take the library's name ("libpng") for their messages.
// Throws kDataLoss for sizes below 1 and for more than kMostPixels.
void check_pixels(const std::string& library, std::int64_t width, std::int64_t height);
// Throws kInvalidArgument for another number than 0, 1 and 3.
void check_channels(const std::string& function, int channels);

// Drops the opacity; nothing is blended.
void drop_opacity(Pixels& image);
// The luma of ITU-R BT.601, which JPEG files hold.
void to_grey(Pixels& image);

}  // namespace lockstep::data::internal

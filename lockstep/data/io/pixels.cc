#include "lockstep/data/io/pixels.h"

#include "lockstep/base/error.h"
#include "lockstep/base/str.h"

namespace lockstep::data::internal {

void check_pixels(const std::string& library, std::int64_t width, std::int64_t height) {
  if (width > 0 && height > 0 && width <= kMostPixels / height) return;
  throw Error(ErrorCode::kDataLoss, str(library, ": the image says that it has ", width, " x ", height,
                                        " pixels; at least 1 and at most ", kMostPixels, " can be read"));
}

void check_channels(const std::string& function, int channels) {
  if (channels == 0 || channels == 1 || channels == 3) return;
  throw Error(ErrorCode::kInvalidArgument,
              str(function, ": ", channels, " channels; give 0 (as in the file), 1 (grey) or 3 (colour)"));
}

void drop_opacity(Pixels& image) {
  const std::size_t kept = image.channels == 4 ? 3 : 1;
  const auto had = kept + 1;
  const auto pixels = image.bytes.size() / had;
  for (std::size_t i = 0; i < pixels; ++i)
    for (std::size_t c = 0; c < kept; ++c) image.bytes[i * kept + c] = image.bytes[i * had + c];
  image.bytes.resize(pixels * kept);
  image.channels = static_cast<int>(kept);
}

void to_grey(Pixels& image) {
  const auto pixels = image.bytes.size() / 3;
  for (std::size_t i = 0; i < pixels; ++i) {
    const auto* const colour = &image.bytes[3 * i];
    image.bytes[i] = static_cast<std::uint8_t>((299 * colour[0] + 587 * colour[1] + 114 * colour[2] + 500) / 1000);
  }
  image.bytes.resize(pixels);
  image.channels = 1;
}

}  // namespace lockstep::data::internal

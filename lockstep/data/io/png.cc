#include "lockstep/data/io/png.h"

#include <png.h>

#include "lockstep/base/error.h"
#include "lockstep/base/on_exit.h"
#include "lockstep/base/str.h"

namespace lockstep::data::internal {
namespace {

constexpr char kLibrary[] = "libpng";

[[noreturn]] void fail(const png_image& png, std::string_view bytes) {
  throw Error(ErrorCode::kDataLoss, str("a PNG image of ", bytes.size(), " bytes is damaged: ", kLibrary, ": ", png.message));
}

png_image empty_image() {
  png_image png = {};
  png.version = PNG_IMAGE_VERSION;
  return png;
}

png_uint_32 format_of(int channels) {
  return channels == 1 ? PNG_FORMAT_GRAY : channels == 3 ? PNG_FORMAT_RGB : PNG_FORMAT_RGBA;
}

}  // namespace

Pixels read_png(std::string_view bytes, int channels) {
  check_channels("decode_png", channels);
  auto png = empty_image();
  const OnExit free_it([&] { png_image_free(&png); });
  if (png_image_begin_read_from_memory(&png, bytes.data(), bytes.size()) == 0) fail(png, bytes);
  check_pixels(kLibrary, png.width, png.height);
  const bool has_colour = (png.format & PNG_FORMAT_FLAG_COLOR) != 0;
  const bool has_opacity = (png.format & PNG_FORMAT_FLAG_ALPHA) != 0;
  // Read with its opacity, which the library would otherwise blend.
  const bool read_colour = has_colour || channels == 3 || (channels == 0 && has_opacity);
  png.format = (read_colour ? PNG_FORMAT_RGB : PNG_FORMAT_GRAY) | (has_opacity ? PNG_FORMAT_FLAG_ALPHA : 0);
  png.flags |= PNG_IMAGE_FLAG_16BIT_sRGB;  // else 16 bits would be taken for linear light
  Pixels image{
      static_cast<int>(png.width), static_cast<int>(png.height), static_cast<int>(PNG_IMAGE_PIXEL_CHANNELS(png.format)), {}};
  image.bytes.resize(PNG_IMAGE_SIZE(png));
  if (png_image_finish_read(&png, nullptr, image.bytes.data(), 0, nullptr) == 0) fail(png, bytes);
  if (channels != 0 && has_opacity) drop_opacity(image);
  if (channels == 1 && image.channels == 3) to_grey(image);
  return image;
}

std::string write_png(const Pixels& image) {
  if (image.channels != 1 && image.channels != 3 && image.channels != 4)
    throw Error(ErrorCode::kInvalidArgument,
                str("encode_png: an image with ", image.channels, " channels; a PNG image has 1, 3 or 4"));
  auto png = empty_image();
  const OnExit free_it([&] { png_image_free(&png); });
  png.width = static_cast<png_uint_32>(image.width);
  png.height = static_cast<png_uint_32>(image.height);
  png.format = format_of(image.channels);
  std::string bytes(PNG_IMAGE_PNG_SIZE_MAX(png), '\0');
  png_alloc_size_t written = bytes.size();
  if (png_image_write_to_memory(&png, bytes.data(), &written, 0, image.bytes.data(), 0, nullptr) == 0)
    throw Error(ErrorCode::kInvalidArgument,
                str("encode_png: an image of ", image.width, " x ", image.height, " pixels: ", kLibrary, ": ", png.message));
  bytes.resize(written);
  return bytes;
}

}  // namespace lockstep::data::internal

#include "lockstep/data/images.h"

#include <ATen/ATen.h>

#include <cstdint>
#include <vector>

#include "lockstep/base/error.h"
#include "lockstep/base/str.h"
#include "lockstep/data/io/jpeg.h"
#include "lockstep/data/io/png.h"

namespace lockstep::data {
namespace {

using internal::Pixels;

constexpr std::string_view kJpegBegin = "\xff\xd8\xff";
constexpr std::string_view kPngBegin = "\x89PNG\r\n\x1a\n";

// From pixels to planes. Loops of our own: ATen's copy would wake the intra-op threads that the replicas compute with.
at::Tensor to_tensor(const Pixels& image) {
  auto tensor = at::empty({image.channels, image.height, image.width}, at::kByte);
  auto* to = tensor.data_ptr<std::uint8_t>();
  const auto channels = static_cast<std::size_t>(image.channels);
  for (std::size_t c = 0; c < channels; ++c)
    for (auto i = c; i < image.bytes.size(); i += channels) *to++ = image.bytes[i];
  return tensor;
}

Pixels to_pixels(const std::string& function, const at::Tensor& tensor) {
  const auto fail = [&](const auto& what) {
    throw Error(ErrorCode::kInvalidArgument,
                lockstep::str(function, ": ", what, "; give an image, uint8 [channels, height, width]"));
  };
  if (!tensor.defined()) fail("a tensor that is not defined");
  if (tensor.scalar_type() != at::kByte || tensor.dim() != 3 || tensor.numel() == 0)
    fail(lockstep::str("a tensor ", tensor.scalar_type(), " ", tensor.sizes()));
  if (tensor.size(0) > 4 || tensor.size(1) > internal::kMostPixels / tensor.size(2))
    fail(lockstep::str("a tensor ", tensor.sizes(), " with more than 4 channels or ", internal::kMostPixels, " pixels"));
  const auto planes = tensor.detach().cpu().contiguous();
  Pixels image{static_cast<int>(planes.size(2)), static_cast<int>(planes.size(1)), static_cast<int>(planes.size(0)), {}};
  image.bytes.resize(static_cast<std::size_t>(planes.numel()));
  const auto* from = planes.data_ptr<std::uint8_t>();
  const auto channels = static_cast<std::size_t>(image.channels);
  for (std::size_t c = 0; c < channels; ++c)
    for (auto i = c; i < image.bytes.size(); i += channels) image.bytes[i] = *from++;
  return image;
}

// "ff d8 00 12", for messages.
std::string first_bytes(std::string_view bytes) {
  constexpr char kDigits[] = "0123456789abcdef";
  std::vector<std::string> shown;
  for (const unsigned char byte : bytes.substr(0, kPngBegin.size())) shown.push_back({kDigits[byte >> 4], kDigits[byte & 15]});
  return join(" ", shown);
}

}  // namespace

at::Tensor decode_jpeg(std::string_view bytes, int channels) { return to_tensor(internal::read_jpeg(bytes, channels)); }

at::Tensor decode_png(std::string_view bytes, int channels) { return to_tensor(internal::read_png(bytes, channels)); }

at::Tensor decode_image(std::string_view bytes, int channels) {
  if (bytes.starts_with(kJpegBegin)) return decode_jpeg(bytes, channels);
  if (bytes.starts_with(kPngBegin)) return decode_png(bytes, channels);
  if (bytes.empty()) throw Error(ErrorCode::kDataLoss, "decode_image: there are no bytes");
  throw Error(ErrorCode::kDataLoss, lockstep::str("decode_image: ", bytes.size(), " bytes that begin with ", first_bytes(bytes),
                                                  " are neither a JPEG nor a PNG image"));
}

std::string encode_jpeg(const at::Tensor& image, int quality) {
  return internal::write_jpeg(to_pixels("encode_jpeg", image), quality);
}

std::string encode_png(const at::Tensor& image) { return internal::write_png(to_pixels("encode_png", image)); }

}  // namespace lockstep::data

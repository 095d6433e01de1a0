#include "lockstep/data/io/jpeg.h"

#include <turbojpeg.h>

#include <algorithm>
#include <memory>

#include "lockstep/base/error.h"
#include "lockstep/base/log.h"
#include "lockstep/base/on_exit.h"
#include "lockstep/base/str.h"

namespace lockstep::data::internal {
namespace {

constexpr char kLibrary[] = "libjpeg-turbo";

using Handle = std::unique_ptr<void, int (*)(tjhandle)>;

Handle make_handle(tjhandle handle) {
  if (handle == nullptr) throw Error(ErrorCode::kInternal, str(kLibrary, " cannot be started: ", tjGetErrorStr2(nullptr)));
  return {handle, tjDestroy};
}

const unsigned char* data_of(std::string_view bytes) { return reinterpret_cast<const unsigned char*>(bytes.data()); }

// The last scan has an end. (Its data contain no markers: a byte 0xff there is followed by a 0.)
bool has_end(std::string_view bytes) {
  const auto scan = bytes.rfind("\xff\xda");
  const auto end = bytes.rfind("\xff\xd9");
  return scan != std::string_view::npos && end != std::string_view::npos && end > scan;
}

class Decoder {
 public:
  explicit Decoder(std::string_view bytes) : bytes_(bytes), handle_(make_handle(tjInitDecompress())) {
    int subsampling = 0;
    // What it returns is not looked at: it minds faults that do not keep it from decoding.
    tjDecompressHeader3(handle_.get(), data_of(bytes_), bytes_.size(), &width_, &height_, &subsampling, &colours_);
    if (width_ <= 0 || height_ <= 0 || colours_ < 0) fail();
    check_pixels(kLibrary, width_, height_);
  }

  bool is_grey() const { return colours_ == TJCS_GRAY; }
  // For print, with black; the library does not make other colours of them.
  bool is_print() const { return colours_ == TJCS_CMYK || colours_ == TJCS_YCCK; }

  Pixels decode(int format) const {
    Pixels image{width_, height_, tjPixelSize[format], {}};
    if (fill(image, format, 0)) return image;
    // Either a warning, or an error, perhaps after a warning: then the library tells only of the warning, and some of the
    // memory stays as it was.
    const std::string message = tjGetErrorStr2(handle_.get());
    const bool is_warning = tjGetErrorCode(handle_.get()) == TJERR_WARNING;
    if (!is_warning || !has_end(bytes_)) fail();
    auto again = image;
    fill(again, format, 0xff);
    if (again.bytes != image.bytes) fail();
    log_once(LogLevel::kWarning, str("a JPEG image is read in spite of a fault in it: ", kLibrary, ": ", message));
    return image;
  }

 private:
  bool fill(Pixels& image, int format, std::uint8_t value) const {
    image.bytes.assign(static_cast<std::size_t>(width_) * static_cast<std::size_t>(height_ * image.channels), value);
    return tjDecompress2(handle_.get(), data_of(bytes_), bytes_.size(), image.bytes.data(), width_, 0, height_, format,
                         TJFLAG_LIMITSCANS) == 0;
  }

  [[noreturn]] void fail() const {
    throw Error(ErrorCode::kDataLoss,
                str("a JPEG image of ", bytes_.size(), " bytes is damaged: ", kLibrary, ": ", tjGetErrorStr2(handle_.get())));
  }

  const std::string_view bytes_;
  const Handle handle_;
  int width_ = 0;
  int height_ = 0;
  int colours_ = -1;
};

// Adobe's programs write cyan, magenta, yellow and black inverted, and this marker.
bool is_inverted(std::string_view bytes) { return bytes.find(std::string_view("\xff\xee\0\x0e\x41\x64obe", 9)) != bytes.npos; }

void print_to_colour(Pixels& image, bool is_inverted) {
  const auto pixels = image.bytes.size() / 4;
  const int flip = is_inverted ? 0 : 255;
  for (std::size_t i = 0; i < pixels; ++i) {
    const int black = image.bytes[4 * i + 3] ^ flip;
    for (std::size_t c = 0; c < 3; ++c)
      image.bytes[3 * i + c] = static_cast<std::uint8_t>(((image.bytes[4 * i + c] ^ flip) * black + 127) / 255);
  }
  image.bytes.resize(3 * pixels);
  image.channels = 3;
}

}  // namespace

Pixels read_jpeg(std::string_view bytes, int channels) {
  check_channels("decode_jpeg", channels);
  if (bytes.empty()) throw Error(ErrorCode::kDataLoss, "a JPEG image is damaged: it has no bytes");
  const Decoder decoder(bytes);
  if (decoder.is_print()) {
    auto image = decoder.decode(TJPF_CMYK);
    print_to_colour(image, is_inverted(bytes));
    if (channels == 1) to_grey(image);
    return image;
  }
  const bool wants_grey = channels == 1 || (channels == 0 && decoder.is_grey());
  return decoder.decode(wants_grey ? TJPF_GRAY : TJPF_RGB);
}

std::string write_jpeg(const Pixels& image, int quality) {
  if (image.channels != 1 && image.channels != 3)
    throw Error(ErrorCode::kInvalidArgument,
                str("encode_jpeg: an image with ", image.channels, " channels; a JPEG image has 1 or 3"));
  if (quality < 1 || quality > 100)
    throw Error(ErrorCode::kInvalidArgument, str("encode_jpeg: quality ", quality, "; it must be in [1, 100]"));
  const auto handle = make_handle(tjInitCompress());
  unsigned char* jpeg = nullptr;
  unsigned long bytes = 0;
  const OnExit free_it([&] { tjFree(jpeg); });
  const bool is_grey = image.channels == 1;
  if (tjCompress2(handle.get(), image.bytes.data(), image.width, 0, image.height, is_grey ? TJPF_GRAY : TJPF_RGB, &jpeg, &bytes,
                  is_grey ? TJSAMP_GRAY : TJSAMP_420, quality, 0) != 0)
    throw Error(ErrorCode::kInvalidArgument, str("encode_jpeg: an image of ", image.width, " x ", image.height,
                                                 " pixels: ", kLibrary, ": ", tjGetErrorStr2(handle.get())));
  return {reinterpret_cast<const char*>(jpeg), bytes};
}

}  // namespace lockstep::data::internal

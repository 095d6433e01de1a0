#include "lockstep/base/error.h"
#include "lockstep/data/io/jpeg.h"

// In place of jpeg.cc where TurboJPEG was not found.

namespace lockstep::data::internal {
namespace {

[[noreturn]] void fail() {
  throw Error(ErrorCode::kUnimplemented,
              "JPEG images: Lockstep was built without TurboJPEG; install libturbojpeg0-dev (2.1 or later) and build again");
}

}  // namespace

Pixels read_jpeg(std::string_view bytes, int channels) { fail(); }

std::string write_jpeg(const Pixels& image, int quality) { fail(); }

}  // namespace lockstep::data::internal

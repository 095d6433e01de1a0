#include "lockstep/base/error.h"
#include "lockstep/data/io/png.h"

// In place of png.cc where libpng was not found.

namespace lockstep::data::internal {
namespace {

[[noreturn]] void fail() {
  throw Error(ErrorCode::kUnimplemented, "PNG images: Lockstep was built without libpng; install libpng-dev and build again");
}

}  // namespace

Pixels read_png(std::string_view bytes, int channels) { fail(); }

std::string write_png(const Pixels& image) { fail(); }

}  // namespace lockstep::data::internal

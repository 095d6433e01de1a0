#include "lockstep/observe/plain_png.h"

#include <zlib.h>

#include <string_view>

#include "lockstep/base/error.h"
#include "lockstep/base/str.h"

namespace lockstep::internal {
namespace {

void put_big_endian(std::string& to, std::uint32_t value) {
  for (int shift = 24; shift >= 0; shift -= 8) to.push_back(static_cast<char>(value >> shift));
}

void put_chunk(std::string& to, std::string_view kind, std::string_view data) {
  put_big_endian(to, static_cast<std::uint32_t>(data.size()));
  const auto start = to.size();
  to.append(kind).append(data);
  const auto* checked = reinterpret_cast<const Bytef*>(to.data() + start);
  put_big_endian(to, static_cast<std::uint32_t>(::crc32(0, checked, static_cast<uInt>(to.size() - start))));
}

std::string deflated(const std::string& bytes) {
  uLongf size = compressBound(bytes.size());
  std::string result(size, '\0');
  if (compress2(reinterpret_cast<Bytef*>(result.data()), &size, reinterpret_cast<const Bytef*>(bytes.data()), bytes.size(),
                Z_BEST_SPEED) != Z_OK)
    throw Error(ErrorCode::kInternal, "zlib cannot compress an image");
  result.resize(size);
  return result;
}

void check(const ImageView& image) {
  constexpr int kMostSide = 1 << 16;
  const bool has_size = image.width >= 1 && image.height >= 1 && image.width <= kMostSide && image.height <= kMostSide;
  const bool has_channels = image.channels == 1 || image.channels == 3 || image.channels == 4;
  const auto needed =
      static_cast<std::size_t>(image.width) * static_cast<std::size_t>(image.height) * static_cast<std::size_t>(image.channels);
  if (has_size && has_channels && image.pixels.size() == needed) return;
  throw Error(ErrorCode::kInvalidArgument,
              str("an image of ", image.width, " x ", image.height, " pixels with ", image.channels, " channels in ",
                  image.pixels.size(), " bytes; 1, 3 or 4 channels, sides from 1 to ", kMostSide,
                  " and width * height * channels bytes can be written"));
}

}  // namespace

std::string plain_png(const ImageView& image) {
  check(image);
  const auto row = static_cast<std::size_t>(image.width) * static_cast<std::size_t>(image.channels);
  std::string rows;
  rows.reserve((row + 1) * static_cast<std::size_t>(image.height));
  for (std::size_t y = 0; y < static_cast<std::size_t>(image.height); ++y) {
    rows.push_back(0);  // no filter
    rows.append(reinterpret_cast<const char*>(image.pixels.data()) + y * row, row);
  }
  std::string header;
  put_big_endian(header, static_cast<std::uint32_t>(image.width));
  put_big_endian(header, static_cast<std::uint32_t>(image.height));
  const char kind = image.channels == 1 ? 0 : image.channels == 3 ? 2 : 6;
  header += {8, kind, 0, 0, 0};
  std::string png = "\x89PNG\r\n\x1a\n";
  put_chunk(png, "IHDR", header);
  put_chunk(png, "IDAT", deflated(rows));
  put_chunk(png, "IEND", {});
  return png;
}

}  // namespace lockstep::internal

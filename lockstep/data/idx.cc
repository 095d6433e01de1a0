#include "lockstep/data/idx.h"

#include <zlib.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <memory>

#include "lockstep/base/error.h"
#include "lockstep/base/str.h"

namespace lockstep::data {
namespace {

constexpr std::uint8_t kUnsignedByte = 0x08;
// Above any real file; a damaged header must not ask for all memory.
constexpr std::int64_t kMostBytes = std::int64_t{1} << 36;

class GzipFile {
 public:
  explicit GzipFile(const std::string& path) : path_(path), file_(gzopen(path.c_str(), "rb"), gzclose) {
    if (!file_) throw Error(ErrorCode::kNotFound, lockstep::str("cannot open '", path, "': ", std::strerror(errno)));
  }

  // Fills `to` or throws kDataLoss.
  void read(std::uint8_t* to, std::int64_t bytes) {
    constexpr std::int64_t kMostAtOnce = 1 << 30;
    while (bytes > 0) {
      const int count = gzread(file_.get(), to, static_cast<unsigned>(std::min(bytes, kMostAtOnce)));
      if (count <= 0) fail(count < 0 ? zlib_message() : "it ends too early");
      to += count;
      bytes -= count;
    }
  }

  // Also makes zlib compare the checksum at the end.
  void require_end() {
    std::uint8_t byte = 0;
    const int count = gzread(file_.get(), &byte, 1);
    if (count < 0) fail(zlib_message());
    if (count > 0) fail("it goes on after its last value");
    int code = Z_OK;
    const char* message = gzerror(file_.get(), &code);
    if (code != Z_OK && code != Z_STREAM_END) fail(message);
  }

  [[noreturn]] void fail(const std::string& why) const {
    throw Error(ErrorCode::kDataLoss, lockstep::str("'", path_, "' is damaged: ", why));
  }

 private:
  std::string zlib_message() const {
    int code = Z_OK;
    return lockstep::str("zlib: ", gzerror(file_.get(), &code));
  }

  const std::string path_;
  const std::unique_ptr<gzFile_s, int (*)(gzFile)> file_;
};

std::vector<std::int64_t> read_sizes(GzipFile& file) {
  std::uint8_t magic[4];
  file.read(magic, 4);
  if (magic[0] != 0 || magic[1] != 0 || magic[2] != kUnsignedByte || magic[3] == 0)
    file.fail("it does not begin as an IDX file of unsigned bytes");
  std::vector<std::int64_t> sizes;
  std::int64_t total = 1;
  for (int d = 0; d < magic[3]; ++d) {
    std::uint8_t big_endian[4];
    file.read(big_endian, 4);
    const auto size = (std::int64_t{big_endian[0]} << 24) | (big_endian[1] << 16) | (big_endian[2] << 8) | big_endian[3];
    if (size > 0 && total > kMostBytes / size) file.fail("its header asks for an impossible size");
    total *= size;
    sizes.push_back(size);
  }
  return sizes;
}

}  // namespace

IdxArray read_idx(const std::string& path) {
  GzipFile file(path);
  IdxArray array{read_sizes(file), {}};
  std::int64_t total = 1;
  for (const auto size : array.sizes) total *= size;
  // Grows with what is really there: a header may lie.
  constexpr std::int64_t kPiece = 1 << 26;
  for (std::int64_t done = 0; done < total;) {
    const auto piece = std::min(kPiece, total - done);
    array.values.resize(static_cast<std::size_t>(done + piece));
    file.read(array.values.data() + done, piece);
    done += piece;
  }
  file.require_end();
  return array;
}

}  // namespace lockstep::data

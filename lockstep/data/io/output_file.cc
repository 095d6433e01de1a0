#include "lockstep/data/io/output_file.h"

#include <fcntl.h>
#include <unistd.h>
#include <zlib.h>

#include <cerrno>
#include <utility>

#include "lockstep/base/errno_text.h"
#include "lockstep/base/error.h"
#include "lockstep/base/str.h"

namespace lockstep::data {
namespace {

constexpr std::size_t kPiece = std::size_t{256} << 10;

}  // namespace

class OutputFile::Deflater {
 public:
  explicit Deflater(Compression compression) : output_(kPiece) {
    constexpr int kMemory = 8;  // zlib's default
    if (deflateInit2(&stream_, Z_DEFAULT_COMPRESSION, Z_DEFLATED, internal::window_bits(compression), kMemory,
                     Z_DEFAULT_STRATEGY) != Z_OK)
      throw Error(ErrorCode::kInternal, "zlib cannot be started");
  }
  ~Deflater() { deflateEnd(&stream_); }
  Deflater(const Deflater&) = delete;
  Deflater& operator=(const Deflater&) = delete;

  void write(OutputFile& file, std::vector<char>& bytes, bool is_last) {
    stream_.next_in = reinterpret_cast<Bytef*>(bytes.data());
    stream_.avail_in = static_cast<uInt>(bytes.size());
    do {
      stream_.next_out = reinterpret_cast<Bytef*>(output_.data());
      stream_.avail_out = static_cast<uInt>(output_.size());
      deflate(&stream_, is_last ? Z_FINISH : Z_NO_FLUSH);
      file.put(output_.data(), output_.size() - stream_.avail_out);
    } while (stream_.avail_out == 0);
  }

 private:
  std::vector<char> output_;
  z_stream stream_ = {};
};

OutputFile::OutputFile(std::string path, Compression compression) : path_(std::move(path)) {
  constexpr int kEverybody = 0666;
  descriptor_ = ::open(path_.c_str(), O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, kEverybody);
  if (descriptor_ < 0)
    throw Error(ErrorCode::kFailedPrecondition, str("the file '", path_, "' cannot be made: ", errno_text(errno)));
  buffer_.reserve(kPiece);
  if (compression != Compression::kNone) deflater_ = std::make_unique<Deflater>(compression);
}

OutputFile::~OutputFile() {
  if (descriptor_ >= 0) ::close(descriptor_);
}

void OutputFile::fail() const {
  throw Error(ErrorCode::kUnavailable, str("the file '", path_, "' cannot be written: ", errno_text(errno)));
}

void OutputFile::put(const char* data, std::size_t bytes) {
  while (bytes > 0) {
    const auto written = ::write(descriptor_, data, bytes);
    if (written < 0 && errno == EINTR) continue;
    if (written < 0) fail();
    data += written;
    bytes -= static_cast<std::size_t>(written);
  }
}

void OutputFile::flush() {
  if (deflater_) deflater_->write(*this, buffer_, /*is_last=*/false);
  else put(buffer_.data(), buffer_.size());
  buffer_.clear();
}

void OutputFile::write(std::string_view bytes) {
  if (!is_open()) throw Error(ErrorCode::kFailedPrecondition, str("the file '", path_, "' is written to and was closed"));
  while (!bytes.empty()) {
    const auto piece = bytes.substr(0, kPiece - buffer_.size());
    buffer_.insert(buffer_.end(), piece.begin(), piece.end());
    bytes.remove_prefix(piece.size());
    if (buffer_.size() == kPiece) flush();
  }
}

void OutputFile::finish(bool on_disk) {
  if (!is_open()) return;
  if (deflater_) deflater_->write(*this, buffer_, /*is_last=*/true);
  else flush();
  // The system may tell only now that the disk is full.
  if (on_disk && fsync(descriptor_) != 0) fail();
  if (::close(std::exchange(descriptor_, -1)) != 0) fail();
}

void OutputFile::close() { finish(/*on_disk=*/false); }

void OutputFile::close_on_disk() { finish(/*on_disk=*/true); }

}  // namespace lockstep::data

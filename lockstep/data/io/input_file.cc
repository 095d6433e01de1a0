#include "lockstep/data/io/input_file.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>
#include <zlib.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <limits>
#include <utility>

#include "lockstep/base/errno_text.h"
#include "lockstep/base/error.h"
#include "lockstep/base/str.h"

namespace lockstep::data {
namespace {

constexpr std::size_t kPiece = std::size_t{256} << 10;

}  // namespace

// A stream that zlib undoes, piece by piece. A gzip file may be several, one after the other.
class InputFile::Inflater {
 public:
  explicit Inflater(Compression compression) : is_gzip_(compression == Compression::kGzip), input_(kPiece) {
    if (inflateInit2(&stream_, internal::window_bits(compression)) != Z_OK)
      throw Error(ErrorCode::kInternal, "zlib cannot be started");
  }
  ~Inflater() { inflateEnd(&stream_); }
  Inflater(const Inflater&) = delete;
  Inflater& operator=(const Inflater&) = delete;

  // Up to `bytes` bytes, at least one; 0 at the end.
  std::size_t read(InputFile& file, char* to, std::size_t bytes) {
    stream_.next_out = reinterpret_cast<Bytef*>(to);
    stream_.avail_out = static_cast<uInt>(std::min<std::size_t>(bytes, kPiece));
    const auto room = stream_.avail_out;
    while (stream_.avail_out == room) {
      if (stream_.avail_in == 0 && !load(file)) return 0;
      if (is_between_) begin_again(file);
      const int code = inflate(&stream_, Z_NO_FLUSH);
      if (code == Z_STREAM_END) is_between_ = true;
      else if (code != Z_OK && code != Z_BUF_ERROR)  // as TensorFlow: the whole piece is lost
        file.fail(str("cannot be decompressed: ", stream_.msg != nullptr ? stream_.msg : "zlib gives no reason"));
    }
    return room - stream_.avail_out;
  }

 private:
  // False when the file ends where it may.
  bool load(InputFile& file) {
    const auto got = file.read_some(input_.data(), input_.size());
    if (got == 0 && !is_between_ && has_begun_) file.fail("is cut off within its compressed data");
    if (got == 0 && !has_begun_) return false;
    has_begun_ = true;
    stream_.next_in = reinterpret_cast<Bytef*>(input_.data());
    stream_.avail_in = static_cast<uInt>(got);
    return got > 0;
  }

  void begin_again(InputFile& file) {
    if (!is_gzip_) file.fail("goes on after its compressed data");
    if (inflateReset(&stream_) != Z_OK) file.fail("cannot be decompressed");
    is_between_ = false;
  }

  const bool is_gzip_;
  std::vector<char> input_;
  z_stream stream_ = {};
  bool has_begun_ = false;
  bool is_between_ = false;  // one stream has ended
};

InputFile::InputFile(std::string path, Compression compression) : path_(std::move(path)), compression_(compression) {
  descriptor_ = open(path_.c_str(), O_RDONLY | O_CLOEXEC);
  if (descriptor_ < 0)
    throw Error(errno == ENOENT || errno == ENOTDIR ? ErrorCode::kNotFound : ErrorCode::kFailedPrecondition,
                str("the file '", path_, "' cannot be opened: ", errno_text(errno)));
  posix_fadvise(descriptor_, 0, 0, POSIX_FADV_SEQUENTIAL);
  if (compression_ != Compression::kNone) inflater_ = std::make_unique<Inflater>(compression_);
}

InputFile::~InputFile() { close(descriptor_); }

std::uint64_t InputFile::size() const {
  struct stat facts = {};
  if (fstat(descriptor_, &facts) != 0) fail(str("has no size: ", errno_text(errno)));
  return static_cast<std::uint64_t>(facts.st_size);
}

void InputFile::fail(const std::string& why) const { throw Error(ErrorCode::kDataLoss, str("the file '", path_, "' ", why)); }

std::size_t InputFile::read_some(char* to, std::size_t bytes) {
  for (;;) {
    const auto got = read(descriptor_, to, bytes);
    if (got >= 0) return static_cast<std::size_t>(got);
    if (errno == EISDIR) throw Error(ErrorCode::kFailedPrecondition, str("'", path_, "' is a folder, not a file"));
    if (errno != EINTR) fail(str("cannot be read: ", errno_text(errno)));
  }
}

// At least one byte more, or the end.
void InputFile::fill() {
  if (begin_ > 0) {
    std::memmove(buffer_.data(), buffer_.data() + begin_, end_ - begin_);
    end_ -= begin_;
    begin_ = 0;
  }
  if (buffer_.size() - end_ < kPiece) buffer_.resize(std::max(end_ + kPiece, end_ * 2));
  const auto room = buffer_.size() - end_;
  const auto got = inflater_ ? inflater_->read(*this, buffer_.data() + end_, room) : read_some(buffer_.data() + end_, room);
  end_ += got;
  is_at_end_ = got == 0;
}

std::string_view InputFile::peek(std::size_t bytes) {
  while (end_ - begin_ < bytes && !is_at_end_) fill();
  return {buffer_.data() + begin_, end_ - begin_};
}

std::uint64_t InputFile::most_left() const {
  struct stat facts = {};
  if (inflater_ || fstat(descriptor_, &facts) != 0 || !S_ISREG(facts.st_mode)) return std::numeric_limits<std::uint64_t>::max();
  const auto size = static_cast<std::uint64_t>(facts.st_size);
  return size - std::min(size, position_);
}

void InputFile::consume(std::size_t bytes) {
  begin_ += bytes;
  position_ += bytes;
}

void InputFile::seek(std::uint64_t position) {
  begin_ = end_ = 0;
  is_at_end_ = false;
  position_ = inflater_ ? 0 : position;
  if (lseek(descriptor_, static_cast<off_t>(position_), SEEK_SET) < 0) fail(str("cannot be read again: ", errno_text(errno)));
  if (!inflater_ && size() < position) fail(str("has become shorter: it ends at byte ", size(), ", before ", position));
  if (!inflater_) return;
  inflater_ = std::make_unique<Inflater>(compression_);
  while (position_ < position) {
    const auto there = peek(1).size();
    if (there == 0) fail(str("has become shorter: it ends at byte ", position_, ", before ", position));
    consume(std::min<std::uint64_t>(there, position - position_));
  }
}

}  // namespace lockstep::data

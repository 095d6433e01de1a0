#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "lockstep/data/io/compression.h"

namespace lockstep::data {

// The bytes of a file from its beginning to its end, decompressed, read in large pieces ahead of their use. One thread at a
// time.
class InputFile {
 public:
  // Throws kNotFound when there is no such file, kFailedPrecondition when it may not be read.
  explicit InputFile(std::string path, Compression compression = Compression::kNone);
  ~InputFile();
  InputFile(const InputFile&) = delete;
  InputFile& operator=(const InputFile&) = delete;

  // What follows: at least `bytes`, or all that is left. Valid until the next call. Memory grows with what is there, not
  // with what is asked for. Throws kDataLoss for a file that cannot be decompressed, or read.
  std::string_view peek(std::size_t bytes);
  // No more than this follows, as far as can be said without reading it: of a compressed file, or a pipe, nothing can.
  std::uint64_t most_left() const;
  // Goes on; not beyond what the last peek() gave.
  void consume(std::size_t bytes);

  // Decompressed bytes consumed so far.
  std::uint64_t position() const noexcept { return position_; }
  // To a position that was there: fast without compression, else by reading up to it.
  void seek(std::uint64_t position);

  const std::string& path() const noexcept { return path_; }
  // Of the file as it lies there, compressed or not.
  std::uint64_t size() const;

 private:
  class Inflater;

  void fill();
  std::size_t read_some(char* to, std::size_t bytes);
  [[noreturn]] void fail(const std::string& why) const;

  const std::string path_;
  const Compression compression_;
  int descriptor_ = -1;
  std::unique_ptr<Inflater> inflater_;  // null: not compressed
  std::vector<char> buffer_;
  std::size_t begin_ = 0;  // of what is not consumed
  std::size_t end_ = 0;
  std::uint64_t position_ = 0;
  bool is_at_end_ = false;
};

}  // namespace lockstep::data

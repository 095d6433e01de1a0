#pragma once

#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "lockstep/data/io/compression.h"

namespace lockstep::data {

// A new file, written in large pieces, compressed or not. One thread at a time.
class OutputFile {
 public:
  // Replaces what is there. Throws kFailedPrecondition when it cannot be made.
  explicit OutputFile(std::string path, Compression compression = Compression::kNone);
  // Without close() the end may be missing.
  ~OutputFile();
  OutputFile(const OutputFile&) = delete;
  OutputFile& operator=(const OutputFile&) = delete;

  // These throw kUnavailable when it cannot be written: a full disk, for example.
  void write(std::string_view bytes);
  void close();
  // The same, and waits until it is on the disk: then a crash of the machine does not lose it.
  void close_on_disk();

  const std::string& path() const noexcept { return path_; }
  bool is_open() const noexcept { return descriptor_ >= 0; }

 private:
  class Deflater;

  void flush();
  void finish(bool on_disk);
  void put(const char* data, std::size_t bytes);
  [[noreturn]] void fail() const;

  const std::string path_;
  int descriptor_ = -1;
  std::unique_ptr<Deflater> deflater_;  // null: not compressed
  std::vector<char> buffer_;
};

}  // namespace lockstep::data

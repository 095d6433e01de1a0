#pragma once

#include <cstddef>
#include <string>
#include <string_view>

namespace lockstep::data {

// A file's bytes in memory, without a copy: pages come as they are touched. Who writes there changes pages of this process,
// never the file. A file that others make shorter meanwhile kills the process (SIGBUS): replace files, do not cut them.
class MappedFile {
 public:
  // Throws kNotFound when there is no such file, kFailedPrecondition when it may not be read or is not a plain file.
  explicit MappedFile(const std::string& path);
  ~MappedFile();
  MappedFile(const MappedFile&) = delete;
  MappedFile& operator=(const MappedFile&) = delete;

  char* data() const noexcept { return data_; }
  std::size_t size() const noexcept { return size_; }
  std::string_view bytes() const noexcept { return {data_, size_}; }

 private:
  char* data_ = nullptr;  // null: an empty file
  std::size_t size_ = 0;
};

}  // namespace lockstep::data

#pragma once

#include <cstdint>
#include <string>
#include <vector>

// What a coordinator asks parameter servers to do with files in a folder that all of them see: see
// Note [files of parameter servers].

namespace lockstep::ps {

namespace methods {
inline constexpr const char* kWriteFiles = "checkpoint.write";
inline constexpr const char* kCheckFiles = "checkpoint.check";
inline constexpr const char* kRestoreFiles = "checkpoint.restore";
}  // namespace methods

struct FileFacts {
  std::string name = "";  // in the folder
  std::uint64_t bytes = 0;
  std::uint32_t crc32c = 0;
  template <typename Fields>
  void list(Fields& fields) {
    fields(name, bytes, crc32c);
  }
};

// The server writes what it has of these variables, and answers when that is on the disk.
struct WriteFilesRequest {
  std::string folder = "";
  std::string suffix = "";              // of the files' names: "-model-ps-0"
  std::vector<std::string> names = {};  // of whole variables; none: all
  template <typename Fields>
  void list(Fields& fields) {
    fields(folder, suffix, names);
  }
};
struct WriteFilesReply {
  std::vector<FileFacts> files = {};
  template <typename Fields>
  void list(Fields& fields) {
    fields(files);
  }
};

// The server reads them, and throws kDataLoss for one that is not as described.
struct CheckFilesRequest {
  std::string folder = "";
  std::vector<FileFacts> files = {};
  template <typename Fields>
  void list(Fields& fields) {
    fields(folder, files);
  }
};

// The server takes what it needs of these variables from whichever files have it.
struct RestoreFilesRequest {
  std::string folder = "";
  std::vector<std::string> files = {};
  std::vector<std::string> names = {};  // as above
  bool is_trial = false;                // only looks whether all of it fits
  template <typename Fields>
  void list(Fields& fields) {
    fields(folder, files, names, is_trial);
  }
};
struct RestoreFilesReply {
  std::vector<std::string> problems = {};  // when there are any, nothing was changed
  std::vector<std::string> found = {};     // whole variables of which this server has some, or all
  template <typename Fields>
  void list(Fields& fields) {
    fields(problems, found);
  }
};

}  // namespace lockstep::ps

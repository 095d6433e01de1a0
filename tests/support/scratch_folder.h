#pragma once

#include <ftw.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cstdio>
#include <cstdlib>
#include <fstream>
#include <iterator>
#include <string>

namespace lockstep::testing {

// A new folder that is removed with all that is in it. (Not std::filesystem: LibTorch's wheels export another library's
// version of it.)
class ScratchFolder {
 public:
  ScratchFolder() { path_ = mkdtemp(name_); }
  ~ScratchFolder() {
    const auto remove_one = [](const char* path, const struct stat*, int, FTW*) { return std::remove(path); };
    nftw(path_.c_str(), remove_one, 16, FTW_DEPTH | FTW_PHYS);
  }
  ScratchFolder(const ScratchFolder&) = delete;
  ScratchFolder& operator=(const ScratchFolder&) = delete;

  const std::string& path() const { return path_; }
  std::string operator/(const std::string& name) const { return path_ + "/" + name; }

  // These give the path.
  std::string write(const std::string& name, const std::string& bytes) const {
    std::ofstream(*this / name, std::ios::binary) << bytes;
    return *this / name;
  }
  std::string make_folder(const std::string& name) const {
    mkdir((*this / name).c_str(), 0777);
    return *this / name;
  }

 private:
  char name_[32] = "/tmp/lockstep_XXXXXX";
  std::string path_;
};

inline std::string content_of(const std::string& path) {
  std::ifstream file(path, std::ios::binary);
  return {std::istreambuf_iterator<char>(file), {}};
}

}  // namespace lockstep::testing

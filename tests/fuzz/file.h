#pragma once

#include <unistd.h>

#include <cstdio>
#include <cstdlib>
#include <string>

// Readers take files: one in memory, written anew for every input.

namespace lockstep::fuzz {

inline std::string write_file(const std::string& content) {
  static const std::string path = [] {
    std::string name = "/dev/shm/lockstep_fuzz_XXXXXX";
    close(mkstemp(name.data()));
    return name;
  }();
  if (FILE* file = std::fopen(path.c_str(), "wb")) {
    std::fwrite(content.data(), 1, content.size(), file);
    std::fclose(file);
  }
  return path;
}

}  // namespace lockstep::fuzz

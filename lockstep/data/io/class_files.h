#pragma once

#include <cstdint>
#include <string>
#include <vector>

namespace lockstep::data::internal {

struct ClassFiles {
  std::vector<std::string> classes = {};
  std::vector<std::string> files = {};
  std::vector<std::int64_t> labels = {};  // by file: the position of its class
};

// The files of a folder that has one sub-folder a class, in these or in folders within them, sorted by class and path. Of
// interest are names that end in one of `endings` (".png"), in any case of letters; those that begin with a dot are not. Throws
// kNotFound for a folder that is not there, has no sub-folder, or is a class without such files; kFailedPrecondition for one
// that may not be read. Messages begin with `function`.
ClassFiles find_class_files(const std::string& function, const std::string& root, const std::vector<std::string>& endings);

}  // namespace lockstep::data::internal

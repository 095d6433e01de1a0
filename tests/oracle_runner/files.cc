#include "tests/oracle_runner/files.h"

#include <cstdlib>
#include <filesystem>

#include "lockstep/data/record_file.h"

namespace lockstep::oracle {
namespace {

// LibTorch's wheels bring parts of another std::filesystem, in which remove_all crashes: one by one.
struct Folder {
  Folder() {
    std::string name = (std::filesystem::temp_directory_path() / "oracle_XXXXXX").string();
    if (mkdtemp(name.data()) == nullptr) throw std::runtime_error("no folder for the files of a case");
    path = name;
  }
  ~Folder() {
    std::error_code ignored;
    for (const auto& name : names) std::filesystem::remove(path + "/" + name, ignored);
    std::filesystem::remove(path, ignored);
  }
  std::string path;
  std::vector<std::string> names;
};

Folder& folder() {
  static Folder one;
  return one;
}

}  // namespace

void write_files(const Json& input) {
  if (!input.contains("files")) return;
  for (const auto& [name, file] : input.at("files").items()) {
    if (file.at("format") != "tfrecord") throw NotApplicable("needs files of format " + file.at("format").get<std::string>());
    if (name.find('/') != std::string::npos) throw NotApplicable("needs files in folders");
    folder().names.push_back(name);
    data::write_records(file_of(name), file.at("payloads").get<std::vector<std::string>>());
  }
}

std::string file_of(const std::string& name) { return folder().path + "/" + name; }

}  // namespace lockstep::oracle

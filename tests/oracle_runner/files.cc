#include "tests/oracle_runner/files.h"

#include <cstdlib>
#include <filesystem>

#include "lockstep/data/io/output_file.h"
#include "lockstep/data/io/tf_record.h"

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

void write_file(const std::string& format, const std::string& path, const std::vector<std::string>& payloads) {
  if (format == "tfrecord") return data::write_records(path, payloads);
  if (format != "text" && format != "fixed") throw NotApplicable("needs files of format " + format);
  data::OutputFile file(path);
  for (const auto& payload : payloads) file.write(format == "text" ? payload + "\n" : payload);
  file.close();
}

}  // namespace

const std::string& oracle_folder() {
  static const auto folder = [] {
    if (const char* named = std::getenv("LOCKSTEP_ORACLE")) return std::string(named);
    const auto ours = std::filesystem::path(LOCKSTEP_SOURCE_DIR) / "tests" / "oracle";
    return std::filesystem::is_directory(ours) ? ours.string() : std::string("tests/oracle");
  }();
  return folder;
}

void write_files(const Json& input) {
  if (!input.contains("files")) return;
  for (const auto& [name, file] : input.at("files").items()) {
    if (name.find('/') != std::string::npos) throw NotApplicable("needs files in folders");
    folder().names.push_back(name);
    write_file(file.at("format"), file_of(name), file.at("payloads").get<std::vector<std::string>>());
  }
}

std::string file_of(const std::string& name) { return folder().path + "/" + name; }

}  // namespace lockstep::oracle

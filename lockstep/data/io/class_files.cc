#include "lockstep/data/io/class_files.h"

#include <dirent.h>
#include <sys/stat.h>

#include <algorithm>
#include <cerrno>
#include <iterator>
#include <memory>
#include <utility>

#include "lockstep/base/errno_text.h"
#include "lockstep/base/error.h"
#include "lockstep/base/str.h"

// POSIX calls, not std::filesystem, whose symbols LibTorch's wheels export in another library's version.

namespace lockstep::data::internal {
namespace {

enum class Kind { kFile, kFolder, kLinkToFolder, kOther };

struct Entry {
  std::string path = "";
  std::string name = "";
  Kind kind = Kind::kOther;
};

// `type` is what the folder says of it, which spares a look at each of a million files.
Kind kind_of(const std::string& path, unsigned char type) {
  if (type == DT_REG) return Kind::kFile;
  if (type == DT_DIR) return Kind::kFolder;
  struct stat facts = {};
  const bool is_link = lstat(path.c_str(), &facts) == 0 && S_ISLNK(facts.st_mode);
  if (stat(path.c_str(), &facts) != 0) return Kind::kOther;
  if (S_ISDIR(facts.st_mode)) return is_link ? Kind::kLinkToFolder : Kind::kFolder;
  return S_ISREG(facts.st_mode) ? Kind::kFile : Kind::kOther;
}

class Search {
 public:
  Search(std::string function, const std::vector<std::string>& endings) : function_(std::move(function)), endings_(endings) {}

  ClassFiles run(const std::string& root) {
    ClassFiles found;
    for (const auto& entry : list(root)) {
      if (entry.kind != Kind::kFolder && entry.kind != Kind::kLinkToFolder) continue;
      std::vector<std::string> files;
      add_files(entry.path, files);
      if (files.empty()) fail_empty(str("the folder '", entry.path, "', a class, holds no file"));
      std::ranges::sort(files);
      found.labels.insert(found.labels.end(), files.size(), static_cast<std::int64_t>(found.classes.size()));
      found.classes.push_back(entry.name);
      std::ranges::move(files, std::back_inserter(found.files));
    }
    if (found.classes.empty())
      fail_empty(str("the folder '", root, "' has no sub-folder; each class needs one, with at least one file"));
    return found;
  }

 private:
  // Sorted by name, without what begins with a dot.
  std::vector<Entry> list(const std::string& folder) const {
    const std::unique_ptr<DIR, int (*)(DIR*)> open(opendir(folder.c_str()), closedir);
    if (!open) fail(folder);
    std::vector<Entry> entries;
    for (;;) {
      errno = 0;
      const auto* const entry = readdir(open.get());
      if (entry == nullptr && errno != 0) fail(folder);
      if (entry == nullptr) break;
      const std::string name = entry->d_name;
      if (name.starts_with('.')) continue;
      auto path = folder.ends_with('/') ? folder + name : str(folder, "/", name);
      const auto kind = kind_of(path, entry->d_type);
      entries.push_back({std::move(path), name, kind});
    }
    std::ranges::sort(entries, {}, &Entry::name);
    return entries;
  }

  // Links to folders are not followed here: they may lead back.
  void add_files(const std::string& folder, std::vector<std::string>& files) const {
    for (auto& entry : list(folder)) {
      if (entry.kind == Kind::kFolder) add_files(entry.path, files);
      else if (entry.kind == Kind::kFile && is_wanted(entry.name)) files.push_back(std::move(entry.path));
    }
  }

  bool is_wanted(const std::string& name) const {
    return std::ranges::any_of(endings_, [large = upper(name)](const auto& ending) { return large.ends_with(upper(ending)); });
  }

  [[noreturn]] void fail(const std::string& folder) const {
    throw Error(errno == ENOENT || errno == ENOTDIR ? ErrorCode::kNotFound : ErrorCode::kFailedPrecondition,
                str(function_, ": the folder '", folder, "' cannot be read: ", errno_text(errno)));
  }
  [[noreturn]] void fail_empty(const std::string& what) const {
    throw Error(ErrorCode::kNotFound,
                str(function_, ": ", what, " that ends in ", join(", ", endings_), " (in any case of letters)"));
  }

  const std::string function_;
  const std::vector<std::string>& endings_;
};

}  // namespace

ClassFiles find_class_files(const std::string& function, const std::string& root, const std::vector<std::string>& endings) {
  return Search(function, endings).run(root);
}

}  // namespace lockstep::data::internal

#include "lockstep/data/io/find_files.h"

#include <glob.h>

#include <cerrno>
#include <new>
#include <set>

#include "lockstep/base/errno_text.h"
#include "lockstep/base/error.h"
#include "lockstep/base/str.h"

namespace lockstep::data {
namespace {

class Matches {
 public:
  explicit Matches(const std::string& pattern) {
    switch (glob(pattern.c_str(), GLOB_ERR | GLOB_NOSORT, nullptr, &found_)) {
      case 0: return;
      case GLOB_NOMATCH: throw Error(ErrorCode::kNotFound, str("list_files: no file matches '", pattern, "'"));
      case GLOB_ABORTED:
        throw Error(ErrorCode::kFailedPrecondition,
                    str("list_files: a folder of '", pattern, "' cannot be read: ", errno_text(errno)));
      default: throw std::bad_alloc();
    }
  }
  ~Matches() { globfree(&found_); }
  Matches(const Matches&) = delete;
  Matches& operator=(const Matches&) = delete;

  void add_to(std::set<std::string>& names) const { names.insert(found_.gl_pathv, found_.gl_pathv + found_.gl_pathc); }

 private:
  glob_t found_ = {};
};

}  // namespace

std::vector<std::string> find_files(const std::vector<std::string>& patterns) {
  std::set<std::string> names;
  for (const auto& pattern : patterns) Matches(pattern).add_to(names);
  return {names.begin(), names.end()};
}

}  // namespace lockstep::data

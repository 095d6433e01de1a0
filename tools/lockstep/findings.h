#pragma once

#include <iosfwd>
#include <string>
#include <vector>

namespace lockstep::tool {

enum class Verdict { kOk, kWarning, kFailed };

// What one check found about one task, or between two.
struct Finding {
  std::string check;  // "port"
  std::string who;    // "worker 1", "worker 0 - worker 1"
  Verdict verdict = Verdict::kOk;
  std::string found = "";
  std::string fix = "";  // what to do about it, unless it is good
  double badness = 0;    // where several are good, the greatest one is shown
};

// As JSON, and back. Throws kDataLoss for what is not such a text.
std::string to_text(const std::vector<Finding>& findings);
std::vector<Finding> findings_from(const std::string& text);

// A table: a line for each check that is good everywhere, a line with its fix for each finding that is not. As JSON: all of
// them, and whether any has failed.
void print_findings(std::ostream& out, const std::vector<Finding>& findings, bool as_json);

bool has_failed(const std::vector<Finding>& findings);

}  // namespace lockstep::tool

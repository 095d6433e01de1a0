#pragma once

#include <string>

namespace lockstep::tool {

struct ReportOptions {
  std::string folder = "";  // of the logs
  std::string out = "";     // "": report.html in the folder
};

// Draws what the logs below a folder hold as one page of HTML that needs no network, and says where it is. Returns 0. Throws
// kNotFound when the folder is not there or has no logs in it, kFailedPrecondition when the page cannot be written.
int run_report(const ReportOptions& options);

}  // namespace lockstep::tool

#pragma once

#include <string>

#include "tools/lockstep/run_logs.h"

namespace lockstep::tool {

// The logs as one page of HTML that needs nothing else. `folder` is shown.
std::string report_page(const RunLogs& logs, const std::string& folder);

}  // namespace lockstep::tool

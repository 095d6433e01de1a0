#pragma once

namespace lockstep::tool {

// The page's style sheet and script.
extern const char kReportStyle[];
extern const char kReportScript[];

}  // namespace lockstep::tool

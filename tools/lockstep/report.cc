#include "tools/lockstep/report.h"

#include <iostream>

#include "lockstep/base/str.h"
#include "lockstep/data/io/whole_file.h"
#include "tools/lockstep/page.h"

namespace lockstep::tool {

int run_report(const ReportOptions& options) {
  const auto logs = read_run_logs(options.folder);
  const auto out = options.out.empty() ? str(options.folder, "/report.html") : options.out;
  data::write_whole_file(out, {report_page(logs, options.folder)});
  std::size_t curves = 0;
  for (const auto& chart : logs.charts) curves += chart.curves.size();
  std::cout << out << ": " << logs.charts.size() << " charts, " << curves << " curves, " << logs.runs.size()
            << (logs.runs.size() == 1 ? " run\n" : " runs\n");
  return 0;
}

}  // namespace lockstep::tool

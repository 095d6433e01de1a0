#include <fcntl.h>
#include <unistd.h>

#include <algorithm>
#include <iostream>

#include "lockstep/base/error.h"
#include "tools/lockstep/agent.h"
#include "tools/lockstep/arguments.h"
#include "tools/lockstep/doctor.h"
#include "tools/lockstep/inspect.h"
#include "tools/lockstep/report.h"
#include "tools/lockstep/run.h"

// The command `lockstep`. Exit status: 0 good, 1 failed, 2 wrong use.

namespace lockstep::tool {
namespace {

int act(const Arguments& arguments) {
  switch (arguments.command) {
    case Arguments::Command::kHelp: std::cout << arguments.help; return 0;
    case Arguments::Command::kRun: return run_job(arguments.run);
    case Arguments::Command::kDoctor: return run_doctor(arguments.doctor);
    case Arguments::Command::kReport: return run_report(arguments.report);
    case Arguments::Command::kAgent: return run_agent(arguments.agent_lost_after);
    case Arguments::Command::kInspect: run_inspect(std::cout, arguments.inspect); return 0;
  }
  return 0;
}

// A descriptor that is opened later must not be taken for standard output.
void open_what_is_closed() {
  for (int descriptor = STDIN_FILENO; descriptor <= STDERR_FILENO; ++descriptor)
    if (fcntl(descriptor, F_GETFD) < 0 && open("/dev/null", O_RDWR) < 0) return;
}

int main(int argc, char** argv) {
  open_what_is_closed();
  constexpr int kFailed = 1;
  constexpr int kWrongUse = 2;
  try {
    return act(parse_arguments({argv + std::min(argc, 1), argv + argc}));
  } catch (const Error& error) {
    std::cerr << "lockstep: " << error.message() << "\n";
    return error.code() == ErrorCode::kInvalidArgument ? kWrongUse : kFailed;
  } catch (const std::exception& error) {
    std::cerr << "lockstep: " << error.what() << "\n";
    return kFailed;
  }
}

}  // namespace
}  // namespace lockstep::tool

int main(int argc, char** argv) { return lockstep::tool::main(argc, argv); }

#pragma once

#include <chrono>
#include <optional>
#include <string>
#include <vector>

#include "lockstep/cluster/address.h"
#include "tools/lockstep/doctor.h"
#include "tools/lockstep/report.h"
#include "tools/lockstep/run_options.h"

namespace lockstep::tool {

struct InspectOptions {
  std::optional<Address> address = std::nullopt;  // absent: of the tasks that the environment names
  std::string records = "";                       // in place of the address: a folder or file of flight records
  std::chrono::milliseconds timeout = std::chrono::seconds(5);
  bool as_json = false;
};

// What a command line asks for.
struct Arguments {
  enum class Command { kHelp, kRun, kInspect, kDoctor, kReport, kAgent };

  Command command = Command::kHelp;
  std::string help = "";  // to be printed
  RunOptions run = {};
  InspectOptions inspect = {};
  DoctorOptions doctor = {};
  ReportOptions report = {};
  std::chrono::milliseconds agent_lost_after = kLostAfter;
};

// Reads a command line (without the program's own name) and checks all that can be checked without starting anything.
// Throws kInvalidArgument that names the option, what was given, and what to give.
Arguments parse_arguments(const std::vector<std::string>& words);

}  // namespace lockstep::tool

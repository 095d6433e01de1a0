#pragma once

#include <string>

#include "tests/oracle_runner/case.h"

// The files that a case brings along, in a folder of this process that is removed at its end.

namespace lockstep::oracle {

// input["files"]: name -> {"format", "payloads"}; formats tfrecord, text (a line each) and fixed (joined). Throws NotApplicable
// for another one.
void write_files(const Json& input);

// Where the oracle's own files are.
const std::string& oracle_folder();

// Where a file of that name is.
std::string file_of(const std::string& name);

}  // namespace lockstep::oracle

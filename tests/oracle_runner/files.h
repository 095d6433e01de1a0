#pragma once

#include <string>

#include "tests/oracle_runner/case.h"

// The files that a case brings along, in a folder of this process that is removed at its end.

namespace lockstep::oracle {

// input["files"]: name -> {"format": "tfrecord", "payloads": [...]}. Throws NotApplicable for another format.
void write_files(const Json& input);

// Where a file of that name is.
std::string file_of(const std::string& name);

}  // namespace lockstep::oracle

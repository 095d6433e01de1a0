#pragma once

#include <string>
#include <vector>

namespace lockstep::data {

// The files that match one of these patterns, as a shell's (*, ?, [a-z]), sorted, each once. Throws kNotFound for a pattern
// that matches nothing, kFailedPrecondition for a folder that may not be read.
std::vector<std::string> find_files(const std::vector<std::string>& patterns);

}  // namespace lockstep::data

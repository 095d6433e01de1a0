#pragma once

#include <string>
#include <string_view>
#include <vector>

namespace lockstep::data {

// Writes these parts, one after the other, to a file beside `path`, then gives it that name: who opens `path` sees what was
// there before or all of it, also after a crash. Throws kFailedPrecondition when the folder is not there or may not be written
// to, kUnavailable when the disk is full; nothing is left behind then.
void write_whole_file(const std::string& path, const std::vector<std::string_view>& parts);

}  // namespace lockstep::data

#pragma once

#include <string>
#include <system_error>

namespace lockstep {

// What the system calls an errno: "Connection refused".
inline std::string errno_text(int error) { return std::generic_category().message(error); }

}  // namespace lockstep

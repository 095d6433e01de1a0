#pragma once

#include <functional>
#include <string>
#include <thread>

namespace lockstep {

// Starts a thread named `name` (at most 15 characters are shown by the system), joined by the returned object's
// destructor. `body` must not throw.
std::jthread start_thread(const std::string& name, std::function<void(std::stop_token)> body);

// Cores this process may use (its affinity mask), at least 1.
int available_cores();

}  // namespace lockstep

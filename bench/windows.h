#pragma once

#include <string>

#include "bench/trainer.h"

// How a program that trains is driven (bench/driver/processes.py): it says that it is ready, and answers each line "run S",
// "memory" and "quit" on its standard input with a line of JSON.

namespace bench {

// A line of /proc/PID/status ("self" for this process), in bytes.
long long status_bytes(const std::string& pid, const std::string& name);

void run_window(Trainer& trainer, double seconds);
void print_memory(const Trainer& trainer);

// Until "quit", or the end of the input. Throws std::invalid_argument for another line.
void serve(Trainer& trainer);

}  // namespace bench

#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <string_view>

#include "lockstep/base/trace.h"

// A recording (lockstep/base/trace.h) as a file that ui.perfetto.dev, chrome://tracing and others show: Chrome's trace format,
// a process for each worker, a row for each of its threads.

namespace lockstep {

// What one worker recorded.
struct WorkerTrace {
  std::string name = "";  // "worker 1 (host7)"
  trace::Recording recording = {};
  std::int64_t clock_offset = 0;  // nanoseconds to add to its times to have the first worker's
  std::int64_t clock_error = 0;   // by how much that may be wrong
};

// The text of a file of all workers' recordings. Times are microseconds since the first worker's recording began.
std::string chrome_trace(std::span<const WorkerTrace> workers);

// Writes this process's recording. Throws kFailedPrecondition when the folder is not there or may not be written to,
// kUnavailable when the disk is full. For all workers of a job: gather_trace.h.
void write_trace(const std::string& path, const trace::Recording& recording);

namespace internal {

// To send a recording. from_bytes throws kDataLoss for anything else.
std::string to_bytes(const trace::Recording& recording);
trace::Recording recording_from_bytes(std::string_view bytes);

}  // namespace internal
}  // namespace lockstep

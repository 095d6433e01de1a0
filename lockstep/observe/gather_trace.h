#pragma once

#include <string>
#include <vector>

#include "lockstep/fwd.h"
#include "lockstep/observe/trace_file.h"

namespace lockstep {

// Everybody's recording, by worker, with what their clocks differ by. All workers call it, with a recording or an empty one;
// all get all.
//
// Note [clocks of a trace]
// The workers meet 32 times. Whoever leaves a meeting does so after everybody has come to it, by whatever clock; so each
// meeting bounds the difference of two clocks from both sides (clock_bounds.h). The middle of the narrowest bounds is taken,
// and half their width is the error, which stands in the file: about the time of one meeting, some ten microseconds in one
// machine's memory and a network's round trip between machines. Workers of one machine have one clock: where the bounds
// allow it their difference is zero. Clocks drift apart, up to some 50 microseconds a second; they are compared at the end of
// the recording.
std::vector<WorkerTrace> gather_trace(WorkerGroup& workers, const trace::Recording& mine);

// Writes the recordings of all workers of the strategy's job to one file, on the first worker. All workers call it, outside
// run(). Throws what write_trace() of one process throws, on the first worker, and what a collective throws.
void write_trace(const std::string& path, const trace::Recording& mine, const Strategy& strategy);

}  // namespace lockstep

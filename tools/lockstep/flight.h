#pragma once

#include <cstdint>
#include <iosfwd>
#include <map>
#include <string>
#include <vector>

namespace lockstep::tool {

// One collective of a flight record.
struct FlightCall {
  std::uint64_t number = 0;
  std::uint64_t step = 0;
  std::string call = "";
  double begun = 0;     // seconds since 1970
  double seconds = -1;  // it took; below 0: it had not ended
  std::string error = "";
};

struct FlightRecords {
  std::map<std::string, std::vector<FlightCall>> tasks = {};  // the last collectives of each, in order
  std::vector<std::string> unread = {};                       // files that could not be read to their end, and why
};

// Reads all flight-*.jsonl of a folder, or one such file. Throws kNotFound when there is none, kFailedPrecondition for a folder
// that may not be read, kDataLoss when no record could be read.
FlightRecords read_flight_records(const std::string& path);

// Where every task was, and who was behind.
void print_flight(std::ostream& out, const FlightRecords& records, bool as_json);

}  // namespace lockstep::tool

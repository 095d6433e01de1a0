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

// By task: its last collectives, in order.
using FlightRecords = std::map<std::string, std::vector<FlightCall>>;

// Reads all flight-*.jsonl of a folder, or one such file. Throws kNotFound when there is none, kDataLoss, with file and
// line, for one that cannot be read.
FlightRecords read_flight_records(const std::string& path);

// Where every task was, and who was behind.
void print_flight(std::ostream& out, const FlightRecords& records, bool as_json);

}  // namespace lockstep::tool

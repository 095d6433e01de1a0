#pragma once

#include <chrono>
#include <cstdint>
#include <iosfwd>
#include <optional>
#include <string>
#include <vector>

#include "lockstep/data/dataset.h"

namespace lockstep::data {

// One operation of a pipeline, as it ran.
struct StageTime {
  std::string stage = "";     // "Map(fn)"
  int depth = 0;              // 0: the last operation
  std::int64_t elements = 0;  // that it gave
  double seconds = 0;         // in it, without its inputs; of an operation with threads of its own, how long it was waited for
  std::optional<double> ready = std::nullopt;  // elements that lay ready when one was asked for, on average; none: no queue
};

struct PipelineReport {
  std::int64_t elements = 0;
  double seconds = 0;
  std::vector<StageTime> stages = {};  // the last operation first
  std::string slowest = "";            // the stage that holds the others up, and what may help

  double elements_per_second() const { return seconds > 0 ? static_cast<double>(elements) / seconds : 0; }
};

// For Dataset::benchmark(), which ends with the pass, or at one of these limits.
struct BenchmarkOptions {
  std::chrono::nanoseconds at_most = std::chrono::seconds(5);
  std::int64_t elements = -1;  // at most; negative: any number
};

std::ostream& operator<<(std::ostream& out, const PipelineReport& report);

}  // namespace lockstep::data

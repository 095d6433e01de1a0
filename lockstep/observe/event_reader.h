#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "lockstep/observe/histogram.h"

namespace lockstep {

// One value of an event; the one of these that it has.
struct EventValue {
  std::string tag = "";
  std::optional<double> scalar = std::nullopt;
  std::optional<Histogram> histogram = std::nullopt;
  std::optional<std::string> text = std::nullopt;
  std::optional<std::string> image = std::nullopt;  // an encoded file: PNG, mostly
};

struct Event {
  double wall_time = 0;  // seconds since 1970
  std::int64_t step = 0;
  std::string file_version = "";  // of the first event
  std::vector<EventValue> values = {};
};

// Whether a file may be an event file, by its name.
bool is_event_file(const std::string& name);

// Calls `visit` with every event of a file, in order: ours, TensorFlow's and PyTorch's. A file whose end is cut off, because
// it is being written or its writer was killed, ends there; an event that is damaged is passed over. True: the file was whole.
// Throws what opening a file throws (kNotFound, kFailedPrecondition).
bool read_events(const std::string& path, const std::function<void(const Event&)>& visit);

}  // namespace lockstep

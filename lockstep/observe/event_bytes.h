#pragma once

#include <cstdint>
#include <string>
#include <string_view>

#include "lockstep/observe/event_writer.h"
#include "lockstep/observe/histogram.h"

// The bytes of TensorBoard's events (tensorflow/core/util/event.proto and framework/summary.proto), by hand.

namespace lockstep::internal {

struct EventHead {
  double wall_time = 0;
  std::int64_t step = 0;
  std::string_view tag = {};
};

// The first event of every file.
std::string version_event(double wall_time);

std::string scalar_event(const EventHead& head, double value);
std::string histogram_event(const EventHead& head, const Histogram& histogram);
std::string text_event(const EventHead& head, std::string_view text);
std::string image_event(const EventHead& head, const ImageView& image, std::string_view png);

}  // namespace lockstep::internal

#include "lockstep/observe/event_bytes.h"

#include <span>
#include <vector>

#include "lockstep/data/io/wire.h"

namespace lockstep::internal {
namespace {

using data::internal::put_fixed;
using data::internal::put_message;
using data::internal::put_number;

// What shows a value: SummaryMetadata's plugin_data.plugin_name, and its data_class.
enum class DataClass { kScalar = 1, kTensor = 2, kBlobs = 3 };

std::string metadata(std::string_view plugin, DataClass data_class) {
  std::string plugin_data;
  put_message(plugin_data, 1, plugin);
  std::string bytes;
  put_message(bytes, 1, plugin_data);
  put_number(bytes, 4, static_cast<std::int64_t>(data_class));
  return bytes;
}

std::string event(const EventHead& head, std::string_view rest_of_value) {
  std::string value;
  put_message(value, 1, head.tag);
  value.append(rest_of_value);
  std::string summary;
  put_message(summary, 1, value);
  std::string bytes;
  put_fixed(bytes, 1, head.wall_time);
  put_number(bytes, 2, head.step);
  put_message(bytes, 5, summary);
  return bytes;
}

std::string_view packed(std::span<const double> numbers) {
  return {reinterpret_cast<const char*>(numbers.data()), numbers.size_bytes()};
}

}  // namespace

std::string version_event(double wall_time) {
  std::string bytes;
  put_fixed(bytes, 1, wall_time);
  put_message(bytes, 3, "brain.Event:2");
  std::string source;
  put_message(source, 1, "lockstep");
  put_message(bytes, 10, source);
  return bytes;
}

std::string scalar_event(const EventHead& head, double value) {
  std::string rest;
  put_fixed(rest, 2, static_cast<float>(value));
  put_message(rest, 9, metadata("scalars", DataClass::kScalar));
  return event(head, rest);
}

std::string histogram_event(const EventHead& head, const Histogram& histogram) {
  std::string histo;
  put_fixed(histo, 1, histogram.min);
  put_fixed(histo, 2, histogram.max);
  put_fixed(histo, 3, histogram.count);
  put_fixed(histo, 4, histogram.sum);
  put_fixed(histo, 5, histogram.sum_squares);
  put_message(histo, 6, packed(histogram.limits));
  put_message(histo, 7, packed(histogram.counts));
  std::string rest;
  put_message(rest, 5, histo);
  put_message(rest, 9, metadata("histograms", DataClass::kTensor));
  return event(head, rest);
}

std::string text_event(const EventHead& head, std::string_view text) {
  constexpr std::int64_t kString = 7;  // DT_STRING
  std::string dimension;
  put_number(dimension, 1, 1);
  std::string shape;
  put_message(shape, 2, dimension);
  std::string tensor;
  put_number(tensor, 1, kString);
  put_message(tensor, 2, shape);
  put_message(tensor, 8, text);
  std::string rest;
  put_message(rest, 8, tensor);
  put_message(rest, 9, metadata("text", DataClass::kTensor));
  return event(head, rest);
}

std::string image_event(const EventHead& head, const ImageView& image, std::string_view png) {
  std::string bytes;
  put_number(bytes, 1, image.height);
  put_number(bytes, 2, image.width);
  put_number(bytes, 3, image.channels);
  put_message(bytes, 4, png);
  std::string rest;
  put_message(rest, 4, bytes);
  put_message(rest, 9, metadata("images", DataClass::kBlobs));
  return event(head, rest);
}

}  // namespace lockstep::internal

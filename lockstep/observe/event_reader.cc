#include "lockstep/observe/event_reader.h"

#include <cstring>

#include "lockstep/base/error.h"
#include "lockstep/data/io/tf_record.h"
#include "lockstep/data/io/wire.h"

namespace lockstep {
namespace {

using data::internal::Field;
using data::internal::Fields;
using data::internal::fixed_value;
using data::internal::is_message;
using data::internal::Wire;

bool is_fixed(const Field& field, std::uint64_t number, Wire wire) { return field.number == number && field.wire == wire; }

void take_doubles(const Field& field, std::vector<double>& to) {
  if (field.wire == Wire::k64) to.push_back(fixed_value<double>(field));
  if (field.wire != Wire::kBytes) return;
  to.resize(field.bytes.size() / sizeof(double));
  if (!to.empty()) std::memcpy(to.data(), field.bytes.data(), to.size() * sizeof(double));
}

Histogram read_histogram(std::string_view bytes) {
  Histogram histogram;
  double* const places[] = {&histogram.min, &histogram.max, &histogram.count, &histogram.sum, &histogram.sum_squares};
  Fields fields(bytes);
  for (Field field; fields.next(field);) {
    if (field.number >= 1 && field.number <= 5 && field.wire == Wire::k64)
      *places[field.number - 1] = fixed_value<double>(field);
    else if (field.number == 6) take_doubles(field, histogram.limits);
    else if (field.number == 7) take_doubles(field, histogram.counts);
  }
  histogram.counts.resize(histogram.limits.size());
  return histogram;
}

// A tensor of one number or of texts, as newer writers have them.
void read_tensor(std::string_view bytes, EventValue& value) {
  enum : std::uint64_t { kFloat = 1, kDouble = 2, kString = 7 };
  std::uint64_t dtype = 0;
  std::string_view content;
  Fields fields(bytes);
  for (Field field; fields.next(field);) {
    if (field.number == 1 && field.wire == Wire::kVarint) dtype = field.value;
    else if (is_message(field, 4) || is_message(field, 5) || is_message(field, 6)) content = field.bytes;
    else if (is_fixed(field, 5, Wire::k32)) value.scalar = fixed_value<float>(field);
    else if (is_fixed(field, 6, Wire::k64)) value.scalar = fixed_value<double>(field);
    else if (is_message(field, 8) && dtype == kString) value.text = value.text.value_or("") + std::string(field.bytes);
  }
  if (dtype == kFloat && content.size() == sizeof(float)) value.scalar = fixed_value<float>({.bytes = content});
  if (dtype == kDouble && content.size() == sizeof(double)) value.scalar = fixed_value<double>({.bytes = content});
}

EventValue read_value(std::string_view bytes) {
  EventValue value;
  Fields fields(bytes);
  for (Field field; fields.next(field);) {
    if (is_message(field, 1)) value.tag = field.bytes;
    else if (is_fixed(field, 2, Wire::k32)) value.scalar = fixed_value<float>(field);
    else if (is_message(field, 5)) value.histogram = read_histogram(field.bytes);
    else if (is_message(field, 8)) read_tensor(field.bytes, value);
    if (!is_message(field, 4)) continue;
    Fields image(field.bytes);
    for (Field part; image.next(part);)
      if (is_message(part, 4)) value.image = part.bytes;
  }
  return value;
}

Event read_event(std::string_view bytes) {
  Event event;
  Fields fields(bytes);
  for (Field field; fields.next(field);) {
    if (is_fixed(field, 1, Wire::k64)) event.wall_time = fixed_value<double>(field);
    else if (is_fixed(field, 2, Wire::kVarint)) event.step = static_cast<std::int64_t>(field.value);
    else if (is_message(field, 3)) event.file_version = field.bytes;
    if (!is_message(field, 5)) continue;
    Fields summary(field.bytes);
    for (Field value; summary.next(value);)
      if (is_message(value, 1)) event.values.push_back(read_value(value.bytes));
  }
  return event;
}

}  // namespace

bool is_event_file(const std::string& name) { return name.find(".tfevents.") != std::string::npos; }

bool read_events(const std::string& path, const std::function<void(const Event&)>& visit) {
  data::RecordReader reader(path);
  bool is_whole = true;
  while (true) {
    std::string_view record;
    try {
      if (!reader.next(record)) return is_whole;
    } catch (const Error& error) {
      if (error.code() != ErrorCode::kDataLoss) throw;
      is_whole = false;
      if (!reader.skip_damage()) return false;
      continue;
    }
    visit(read_event(record));
  }
}

}  // namespace lockstep

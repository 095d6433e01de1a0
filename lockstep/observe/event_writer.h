#pragma once

#include <chrono>
#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <string_view>

namespace lockstep {

// An image of 8 bits: rows from the top, pixels from the left, the channels of a pixel side by side (1: grey, 3: red, green
// and blue, 4: with opacity). Only looked at.
struct ImageView {
  int width = 0;
  int height = 0;
  int channels = 0;
  std::span<const std::uint8_t> pixels = {};
};

struct EventWriterOptions {
  // What was given is in the file after so long at the latest.
  std::chrono::milliseconds flush_every = std::chrono::seconds(2);
};

// Writes an event file of TensorBoard: scalars, histograms, texts and images by tag and step. `tensorboard --logdir` and
// `lockstep report` read it while it grows.
//
// A new file in `folder` each time, `events.out.tfevents.<seconds>.<host>.<pid>.<n>`. The calls copy what they are given and
// return; a thread writes it. When the disk is full or gone while training goes on, events are lost, with one warning, and the
// file stays whole. With several workers, the chief writes. Thread-safe.
class EventWriter {
 public:
  // Makes the folder where it is missing. Throws kFailedPrecondition when it cannot be made or written to, kUnavailable when
  // the disk is full.
  explicit EventWriter(const std::string& folder, const EventWriterOptions& options = {});
  // Writes what is left.
  ~EventWriter();
  EventWriter(const EventWriter&) = delete;
  EventWriter& operator=(const EventWriter&) = delete;

  // Kept as float32, which is all that TensorBoard draws.
  void scalar(std::string_view tag, double value, std::int64_t step);
  // TensorBoard's buckets, each 1.1 times as wide as the last. Values that are not finite are left out, with one warning.
  void histogram(std::string_view tag, std::span<const float> values, std::int64_t step);
  void histogram(std::string_view tag, std::span<const double> values, std::int64_t step);
  // Shown as Markdown.
  void text(std::string_view tag, std::string_view markdown, std::int64_t step);
  // As PNG. Throws kInvalidArgument for a size below 1, other channels, or another number of bytes.
  void image(std::string_view tag, const ImageView& image, std::int64_t step);

  // Waits until all that was given is in the file, for half a minute at most. False: some of it was lost.
  bool flush();

  const std::string& path() const noexcept;

 private:
  struct State;
  std::unique_ptr<State> state_;
};

}  // namespace lockstep

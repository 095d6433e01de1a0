#pragma once

#include <ATen/core/Generator.h>
#include <c10/core/Device.h>

#include <memory>
#include <string>
#include <vector>

namespace lockstep {

// Work of a GPU that is recorded once, and then done again as often as it is wanted by one call: a CUDA graph, with the memory
// that the work uses. Not thread-safe.
class DeviceGraph {
 public:
  // Why the work of this device cannot be recorded; empty: it can.
  static std::string why_not(c10::Device device);

  // `generators`: those of the device whose random numbers the work uses. They go on each time it is done.
  // Throws kUnimplemented where why_not() says something.
  DeviceGraph(c10::Device device, const std::vector<at::Generator>& generators);
  ~DeviceGraph();
  DeviceGraph(const DeviceGraph&) = delete;
  DeviceGraph& operator=(const DeviceGraph&) = delete;

  // From now on what is queued on the calling thread's current stream, and on streams that wait for it, is not done but
  // recorded. That must not be the device's default stream. end() or abandon() is called by the same thread.
  void begin();
  // Throws kFailedPrecondition when something was done that cannot be recorded.
  void end();
  // Between begin() and end(): whether everything so far was recorded.
  bool is_sound() const noexcept;
  // In place of end(): the device, its memory and the generators are as they were.
  void abandon() noexcept;

  // After begin(), before the rest of the work: it begins with a copy of `bytes` from somewhere to `to`, both on the device.
  // set_input() says from where, before a replay() and in the order in which inputs were added; without it, from where it was
  // the last time.
  void add_input(void* to, const void* from, std::size_t bytes);
  void set_input(std::size_t index, const void* from);

  // Queues the work on the calling thread's current stream. After end().
  void replay();

 private:
  struct State;
  std::unique_ptr<State> state_;
};

}  // namespace lockstep

#pragma once

#include <c10/core/Device.h>
#include <c10/core/Stream.h>

#include <memory>

namespace lockstep {

// Orders the work of two threads on an asynchronous device: what was queued before record() is done before what is
// queued after block(). Costs nothing on the CPU, where work is done when the call returns.
class StreamFence {
 public:
  StreamFence();
  ~StreamFence();
  StreamFence(StreamFence&&) noexcept;
  StreamFence& operator=(StreamFence&&) noexcept;

  // Marks the end of what the calling thread has queued so far on `device`.
  void record(c10::Device device) {
    if (device.is_cpu()) is_recorded_ = false;
    else record_event(device);
  }

  // The same of one stream, whoever queues on it.
  void record(const c10::Stream& stream);

  // Makes the calling thread's later work on the recorded device wait for the mark, without waiting on the host.
  void block() const {
    if (is_recorded_) block_on_event();
  }
  // The same of a stream's later work.
  void block(const c10::Stream& stream) const;

 private:
  struct State;
  void record_event(c10::Device device);
  void block_on_event() const;

  bool is_recorded_ = false;
  std::unique_ptr<State> state_;
};

// What is queued on `later` from now on waits for what `earlier` has, without waiting on the host.
void put_in_order(const c10::Stream& earlier, const c10::Stream& later);

}  // namespace lockstep

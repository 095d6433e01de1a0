#include "lockstep/device/stream_fence.h"

#include <c10/core/Event.h>
#include <c10/core/impl/VirtualGuardImpl.h>

namespace lockstep {

struct StreamFence::State {
  explicit State(c10::Device on) : device(on), event(on.type()) {}
  c10::Device device;
  c10::Event event;
};

StreamFence::StreamFence() = default;
StreamFence::~StreamFence() = default;
StreamFence::StreamFence(StreamFence&&) noexcept = default;
StreamFence& StreamFence::operator=(StreamFence&&) noexcept = default;

void StreamFence::record_event(c10::Device device) { record(c10::impl::VirtualGuardImpl(device.type()).getStream(device)); }

void StreamFence::record(const c10::Stream& stream) {
  // A fresh event each time: another thread may still be queueing a wait for the last one.
  state_ = std::make_unique<State>(stream.device());
  state_->event.record(stream);
  is_recorded_ = true;
}

void StreamFence::block_on_event() const {
  block(c10::impl::VirtualGuardImpl(state_->device.type()).getStream(state_->device));
}

void StreamFence::block(const c10::Stream& stream) const {
  if (is_recorded_) state_->event.block(stream);
}

void put_in_order(const c10::Stream& earlier, const c10::Stream& later) {
  if (earlier == later) return;
  StreamFence fence;
  fence.record(earlier);
  fence.block(later);
}

}  // namespace lockstep

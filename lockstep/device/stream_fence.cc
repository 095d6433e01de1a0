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

void StreamFence::record_event(c10::Device device) {
  const c10::impl::VirtualGuardImpl guard(device.type());
  // A fresh event each time: another thread may still be queueing a wait for the last one.
  state_ = std::make_unique<State>(device);
  state_->event.record(guard.getStream(device));
  is_recorded_ = true;
}

void StreamFence::block_on_event() const {
  const c10::impl::VirtualGuardImpl guard(state_->device.type());
  state_->event.block(guard.getStream(state_->device));
}

}  // namespace lockstep

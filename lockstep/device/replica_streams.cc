#include "lockstep/device/replica_streams.h"

#include <c10/core/impl/VirtualGuardImpl.h>

#include "lockstep/device/stream_fence.h"

namespace lockstep {
namespace {

c10::Stream current_stream(c10::Device device) { return c10::impl::VirtualGuardImpl(device.type()).getStream(device); }

}  // namespace

ReplicaStreams::ReplicaStreams(const std::vector<c10::Device>& devices) {
  for (const auto device : devices) {
    streams_.emplace_back();
    if (device.is_cpu()) continue;
    streams_.back() = c10::impl::VirtualGuardImpl(device.type()).getStreamFromGlobalPool(device);
    is_any_ = true;
  }
}

void ReplicaStreams::fork_all() const {
  for (const auto& stream : streams_)
    if (stream) put_in_order(current_stream(stream->device()), *stream);
}

void ReplicaStreams::join_all() const {
  for (const auto& stream : streams_)
    if (stream) put_in_order(*stream, current_stream(stream->device()));
}

}  // namespace lockstep

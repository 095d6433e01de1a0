#include "lockstep/device/native_stream.h"

#include <cstdint>

namespace lockstep {

// What c10::cuda::getStreamFromExternal makes, without CUDA's headers: the id of such a stream is its address.
c10::Stream native_stream(c10::Device device, void* stream) {
  return c10::Stream(c10::Stream::UNSAFE, device, static_cast<c10::StreamId>(reinterpret_cast<std::intptr_t>(stream)));
}

}  // namespace lockstep

#pragma once

#include <c10/core/Stream.h>

namespace lockstep {

// A stream that another library made (cudaStream_t), for c10::StreamGuard. It must outlive its use. Null: the device's
// default.
c10::Stream native_stream(c10::Device device, void* stream);

}  // namespace lockstep

#pragma once

#include <cstdint>
#include <string_view>

#include "lockstep/fwd.h"
#include "lockstep/observe/event_writer.h"

namespace lockstep {

// Tensors for an EventWriter. They may be on any device and are copied; whoever calls waits for that.

// The distribution of a tensor's values, whatever its shape. Throws kInvalidArgument for complex and quantized tensors.
void write_histogram(EventWriter& writer, std::string_view tag, const at::Tensor& values, std::int64_t step);

// Where a tensor's channels are.
enum class ImageLayout { kChannelsFirst, kChannelsLast };

// A picture [C, H, W] (or [H, W, C]) with 1, 3 or 4 channels, or [H, W], which is grey; or several, [N, ...] as one dimension
// more than that, side by side in a grid. Bytes, or floating-point numbers from 0 to 1 (what is beyond is clipped).
// Throws kInvalidArgument for other shapes and dtypes.
void write_image(EventWriter& writer, std::string_view tag, const at::Tensor& image, std::int64_t step,
                 ImageLayout layout = ImageLayout::kChannelsFirst);

}  // namespace lockstep

#include "lockstep/observe/summary.h"

#include <ATen/ATen.h>
#include <c10/core/GradMode.h>

#include <cmath>
#include <span>

#include "lockstep/base/error.h"
#include "lockstep/base/str.h"

namespace lockstep {
namespace {

// [N, H, W, C] of bytes, on the CPU.
at::Tensor pictures(const at::Tensor& given, ImageLayout layout) {
  auto image = given.detach().to(at::kCPU);
  if (image.dim() == 2) image = image.unsqueeze(layout == ImageLayout::kChannelsFirst ? 0 : 2);
  if (image.dim() == 3) image = image.unsqueeze(0);
  const bool has_shape = image.dim() == 4 && image.numel() > 0;
  if (has_shape && layout == ImageLayout::kChannelsFirst) image = image.permute({0, 2, 3, 1});
  const bool has_channels = has_shape && (image.size(3) == 1 || image.size(3) == 3 || image.size(3) == 4);
  const bool has_dtype = given.is_floating_point() || given.scalar_type() == at::kByte;
  if (!has_channels || !has_dtype)
    throw Error(
        ErrorCode::kInvalidArgument,
        lockstep::str("write_image: a tensor ", given.sizes(), " of ", given.scalar_type(), " with channels ",
                      layout == ImageLayout::kChannelsFirst ? "first" : "last",
                      " is no image: it must be [H, W], or have 1, 3 or 4 channels, or be several of these; of bytes, or "
                      "of floating-point numbers from 0 to 1"));
  if (given.is_floating_point()) image = image.to(at::kFloat).nan_to_num(0).clamp(0, 1).mul(255).round().to(at::kByte);
  return image.contiguous();
}

// Several pictures as one, in rows; as square as it gets.
at::Tensor grid_of(const at::Tensor& images) {
  const auto count = images.size(0);
  if (count == 1) return images[0];
  const auto columns = static_cast<std::int64_t>(std::ceil(std::sqrt(static_cast<double>(count))));
  const auto rows = (count + columns - 1) / columns;
  const auto height = images.size(1);
  const auto width = images.size(2);
  auto grid = at::zeros({rows * height, columns * width, images.size(3)}, images.options());
  for (std::int64_t k = 0; k < count; ++k)
    grid.slice(0, k / columns * height, (k / columns + 1) * height)
        .slice(1, k % columns * width, (k % columns + 1) * width)
        .copy_(images[k]);
  return grid;
}

}  // namespace

void write_histogram(EventWriter& writer, std::string_view tag, const at::Tensor& values, std::int64_t step) {
  const c10::NoGradGuard no_grad;
  if (values.is_complex() || values.is_quantized())
    throw Error(ErrorCode::kInvalidArgument,
                lockstep::str("write_histogram: '", tag, "' is a tensor of ", values.scalar_type(),
                              "; real numbers have a histogram: give its parts, or what it stands for"));
  const auto dense = values.layout() == at::kStrided ? values.detach() : values.detach().to_dense();
  const bool is_double = dense.scalar_type() == at::kDouble || dense.scalar_type() == at::kLong;
  const auto flat = dense.to(at::kCPU, is_double ? at::kDouble : at::kFloat).contiguous();
  const auto count = static_cast<std::size_t>(flat.numel());
  if (is_double) writer.histogram(tag, std::span<const double>(flat.data_ptr<double>(), count), step);
  else writer.histogram(tag, std::span<const float>(flat.data_ptr<float>(), count), step);
}

void write_image(EventWriter& writer, std::string_view tag, const at::Tensor& image, std::int64_t step, ImageLayout layout) {
  const c10::NoGradGuard no_grad;
  const auto grid = grid_of(pictures(image, layout)).contiguous();
  writer.image(tag,
               {static_cast<int>(grid.size(1)),
                static_cast<int>(grid.size(0)),
                static_cast<int>(grid.size(2)),
                {grid.data_ptr<std::uint8_t>(), static_cast<std::size_t>(grid.numel())}},
               step);
}

}  // namespace lockstep

#include "lockstep/collective/device_exchange.h"

#include <ATen/ATen.h>
#include <c10/core/StreamGuard.h>

#include <algorithm>
#include <array>

#include "lockstep/collective/packed_tensors.h"
#include "lockstep/device/native_stream.h"
#include "lockstep/device/stream_fence.h"

namespace lockstep {

DeviceExchange::DeviceExchange(std::shared_ptr<Transport> engine, c10::Device device, const WorkerLayout& layout,
                               bool is_deterministic)
    : engine_(std::move(engine)),
      device_(device),
      stream_(native_stream(device, engine_->stream())),
      is_deterministic_(is_deterministic),
      sum_(*engine_, layout) {}

bool DeviceExchange::serves(std::span<const at::Tensor> values) const {
  return !values.empty() &&
         std::ranges::all_of(values, [&](const at::Tensor& value) { return value.device().type() == device_.type(); });
}

void DeviceExchange::on_stream(const std::function<void()>& body) {
  StreamFence before;
  StreamFence after;
  before.record(device_);
  {
    const c10::StreamGuard guard(stream_);
    before.block();
    body();
    after.record(device_);
  }
  after.block();
}

void DeviceExchange::sum(std::span<const std::vector<at::Tensor>> values, std::span<at::Tensor> outputs) {
  for (const auto& group : group_by_dtype(values[0])) {
    const auto& first = outputs[group.members[0]];
    const bool is_in_place = group.members.size() == 1 && first.device() == device_ && first.is_contiguous();
    const auto result =
        is_in_place ? first.detach().view(-1) : at::empty({group.count}, at::TensorOptions(group.dtype).device(device_));
    on_stream([&] {
      std::vector<at::Tensor> arrays;
      for (const auto& of_replica : values) arrays.push_back(flat_pack(of_replica, group.members, device_));
      arrays = sum_subtrees(sum_.local(), std::move(arrays), device_);
      const auto type = native_type(group.dtype);
      if (is_deterministic_ || !type || !sum_.brings_one_each()) return sum_.reduce(arrays, result);
      result.copy_(arrays[0]);
      engine_->all_reduce(*type, bytes_of(result));
    });
    unpack_flat(result, group.members, outputs);
  }
}

std::vector<at::Tensor> DeviceExchange::all_gather(std::span<const at::Tensor> values, std::span<const std::string> shapes) {
  std::vector<std::vector<at::Tensor>> by_worker;
  std::size_t most = 0;
  for (std::size_t worker = 0; worker < shapes.size(); ++worker) {
    auto& tensors = by_worker.emplace_back();
    if (static_cast<int>(worker) == engine_->rank())
      for (const auto& value : values)
        tensors.push_back(flat_pack({&value, 1}, std::array{std::size_t{0}}, device_).view(value.sizes()));
    else tensors = empty_from_text(shapes[worker], device_);
    most = std::max(most, tensors.size());
  }
  on_stream([&] {
    for (std::size_t k = 0; k < most; ++k) {
      std::vector<Bytes> parts;
      for (const auto& tensors : by_worker) parts.push_back(k < tensors.size() ? bytes_of(tensors[k]) : Bytes());
      engine_->all_gather(parts);
    }
  });
  std::vector<at::Tensor> all;
  for (auto& tensors : by_worker) all.insert(all.end(), tensors.begin(), tensors.end());
  return all;
}

void DeviceExchange::broadcast(std::span<at::Tensor> values) {
  for (auto& value : values) {
    const auto flat = flat_pack({&value, 1}, std::array{std::size_t{0}}, device_);
    on_stream([&] { engine_->broadcast(bytes_of(flat), 0); });
    if (engine_->rank() != 0 && !flat.is_alias_of(value)) value.detach().copy_(flat.view(value.sizes()));
  }
}

}  // namespace lockstep

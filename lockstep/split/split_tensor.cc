#include "lockstep/split/split_tensor.h"

#include <ATen/ATen.h>

#include <numeric>

#include "lockstep/base/error.h"
#include "lockstep/split/dispatch.h"
#include "lockstep/split/gradients.h"
#include "lockstep/split/logical_parts.h"

namespace lockstep::split {
namespace {

// LibTorch knows of it what a tensor's metadata tell, and that operations are ours to do.
class SplitTensorImpl final : public c10::TensorImpl {
 public:
  explicit SplitTensorImpl(SplitValue value)
      : c10::TensorImpl(c10::DispatchKeySet(kSplitKey), value.parts[0].dtype(), value.home->at(0)), value_(std::move(value)) {
    set_storage_access_should_throw();
    set_sizes_contiguous(value_.tiling.sizes());
  }

  SplitValue& value() noexcept { return value_; }

  // For Tensor::data(), which LibTorch does not ask us for.
  c10::intrusive_ptr<c10::TensorImpl> shallow_copy_and_detach(const c10::VariableVersion&, bool) const override {
    return detached();
  }
  c10::intrusive_ptr<c10::TensorImpl> shallow_copy_and_detach(c10::VariableVersion&&, bool) const override {
    return detached();
  }
  void shallow_copy_from(const c10::intrusive_ptr<c10::TensorImpl>&) override {
    throw Error(ErrorCode::kUnimplemented, "set_data() of a split tensor; make it whole first (without_annotation)");
  }

 private:
  c10::intrusive_ptr<c10::TensorImpl> detached() const {
    auto value = value_;
    for (auto& part : value.parts) part = part.detach();
    return c10::make_intrusive<SplitTensorImpl>(std::move(value));
  }
  const char* tensorimpl_type_name() const override { return "lockstep::split::SplitTensorImpl"; }

  SplitValue value_;
};

at::Tensor front_of(SplitValue value) {
  register_operations();
  const at::Tensor front(c10::make_intrusive<SplitTensorImpl>(std::move(value)));
  connect(front, *find_value(front));
  return front;
}

// Has memory of its own: what is written to it later is not written to `tensor`.
at::Tensor copied(const at::Tensor& tensor, c10::Device device) {
  return tensor.to(device, tensor.scalar_type(), /*non_blocking=*/true, /*copy=*/true);
}

at::Tensor join(const std::vector<at::Tensor>& tiles, const Tiling& tiling, c10::Device device) {
  std::vector<at::Tensor> now;
  for (const auto& tile : tiles) now.push_back(moved(tile, device));
  for (std::size_t d = tiling.dimensions(); d-- > 0;) {
    const auto parts = static_cast<std::size_t>(tiling.count(d));
    if (parts == 1) continue;
    std::vector<at::Tensor> joined;
    for (std::size_t k = 0; k < now.size(); k += parts)
      joined.push_back(at::cat(at::ArrayRef<at::Tensor>(&now[k], parts), static_cast<std::int64_t>(d)));
    now = std::move(joined);
  }
  return now[0];
}

at::Tensor narrowed(at::Tensor tensor, const Region& region) {
  for (std::size_t d = 0; d < region.size(); ++d) {
    const auto dimension = static_cast<std::int64_t>(d);
    if (region[d].begin == 0 && region[d].end == tensor.size(dimension)) continue;
    tensor = tensor.narrow(dimension, region[d].begin, region[d].size());
  }
  return tensor;
}

// The parts of a dimension's cuts that a range meets: [first, last).
Range parts_met(const std::vector<std::int64_t>& cuts, const Range& range) {
  Range met{0, 0};
  const auto parts = static_cast<std::int64_t>(cuts.size()) - 1;
  while (met.begin < parts - 1 && cuts[static_cast<std::size_t>(met.begin) + 1] <= range.begin) ++met.begin;
  met.end = met.begin + 1;
  while (met.end < parts && cuts[static_cast<std::size_t>(met.end)] < range.end) ++met.end;
  return met;
}

at::Tensor fetch_tiles(const SplitValue& value, const Region& region, c10::Device device) {
  // A tiling of the region by the tiles that it meets.
  std::vector<std::vector<std::int64_t>> cuts;
  std::vector<Range> met;
  for (std::size_t d = 0; d < region.size(); ++d) {
    met.push_back(parts_met(value.tiling.cuts(d), region[d]));
    cuts.emplace_back();
    for (auto part = met[d].begin; part <= met[d].end; ++part) cuts[d].push_back(part - met[d].begin);
  }
  const auto grid = Tiling::of_cuts(cuts);
  std::vector<at::Tensor> pieces;
  for (std::size_t k = 0; k < grid.tiles(); ++k) {
    auto position = grid.position(k);
    for (std::size_t d = 0; d < region.size(); ++d) position[d] += met[d].begin;
    const auto index = value.tiling.index(position);
    const auto tile = value.tiling.tile(index);
    auto part = intersection(tile, region);
    for (std::size_t d = 0; d < part.size(); ++d) part[d] = {part[d].begin - tile[d].begin, part[d].end - tile[d].begin};
    pieces.push_back(narrowed(value.parts[index], part));
  }
  return join(pieces, grid, device);
}

}  // namespace

SplitValue* find_value(const at::Tensor& tensor) noexcept {
  if (!tensor.defined() || !tensor.unsafeGetTensorImpl()->key_set().has(kSplitKey)) return nullptr;
  return &static_cast<SplitTensorImpl*>(tensor.unsafeGetTensorImpl())->value();
}

at::Tensor make_tensor(SplitValue value) {
  const bool is_one = value.parts.size() == 1 && value.devices[0] == 0;
  if (is_one) return value.parts[0];
  return front_of(std::move(value));
}

at::Tensor make_copy_of_view(const at::Tensor& copy, const Home& home) {
  return front_of({home, false, true, Tiling(copy.sizes().vec()), {copy}, {0}});
}

at::Tensor moved(const at::Tensor& tensor, c10::Device device) {
  if (tensor.device() == device || (tensor.dim() == 0 && tensor.device().is_cpu())) return tensor;
  return tensor.to(device, tensor.scalar_type(), /*non_blocking=*/true);
}

at::Tensor whole(const at::Tensor& tensor) {
  const auto* const value = find_value(tensor);
  if (value == nullptr) return tensor;
  if (value->is_replicated) return value->parts[0];
  return join(value->parts, value->tiling, value->home->at(0));
}

at::Tensor fetch(const at::Tensor& tensor, const Region& region, const LogicalDevices& home, int device) {
  const auto* const value = find_value(tensor);
  if (value == nullptr) return moved(narrowed(tensor, region), home.at(device));
  if (value->is_replicated) {
    const auto here = static_cast<std::size_t>(device) < value->parts.size() ? static_cast<std::size_t>(device) : 0;
    return moved(narrowed(value->parts[here], region), home.at(device));
  }
  return fetch_tiles(*value, region, home.at(device));
}

std::vector<at::Tensor> cut(const at::Tensor& tensor, const Tiling& tiling, const LogicalDevices& home,
                            const std::vector<int>& devices) {
  std::vector<at::Tensor> now = {tensor};
  for (std::size_t d = 0; d < tiling.dimensions(); ++d) {
    if (!tiling.is_cut(d)) continue;
    std::vector<std::int64_t> sizes = tiling.cuts(d);
    std::adjacent_difference(sizes.begin(), sizes.end(), sizes.begin());
    sizes.erase(sizes.begin());
    std::vector<at::Tensor> pieces;
    for (const auto& one : now)
      for (const auto& piece : at::split_with_sizes(one, sizes, static_cast<std::int64_t>(d))) pieces.push_back(piece);
    now = std::move(pieces);
  }
  for (std::size_t k = 0; k < now.size(); ++k) now[k] = copied(now[k], home.at(devices[k])).contiguous();
  return now;
}

at::Tensor assign_to(const at::Tensor& tensor, const Home& home, int device) {
  const auto plain = whole(tensor);
  auto there = device == 0 ? moved(plain, home->at(0)) : copied(plain, home->at(device));
  return make_tensor({home, false, false, Tiling(plain.sizes().vec()), {std::move(there)}, {device}});
}

at::Tensor split_to(const at::Tensor& tensor, const Home& home, const std::vector<std::int64_t>& counts) {
  const Tiling tiling(tensor.sizes().vec(), counts);
  std::vector<int> devices(tiling.tiles());
  std::iota(devices.begin(), devices.end(), 0);
  if (const auto* const value = find_value(tensor);
      value != nullptr && !value->is_replicated && value->tiling == tiling && value->devices == devices)
    return tensor;
  auto parts = cut(whole(tensor), tiling, *home, devices);
  return make_tensor({home, false, false, tiling, std::move(parts), std::move(devices)});
}

at::Tensor replicate_to(const at::Tensor& tensor, const Home& home) {
  const auto plain = whole(tensor);
  SplitValue value{home, true, false, Tiling(plain.sizes().vec()), {}, {}};
  for (int device = 0; device < home->count(); ++device) {
    value.parts.push_back(copied(plain, home->at(device)));
    value.devices.push_back(device);
  }
  return make_tensor(std::move(value));
}

}  // namespace lockstep::split

namespace lockstep {

std::vector<LogicalPart> logical_parts(const at::Tensor& tensor) {
  const auto* const value = split::find_value(tensor);
  if (value == nullptr) return {{0, std::vector<std::int64_t>(static_cast<std::size_t>(tensor.dim())), tensor}};
  std::vector<LogicalPart> parts;
  for (std::size_t k = 0; k < value->parts.size(); ++k) {
    LogicalPart part{value->devices[k], {}, value->parts[k]};
    for (const auto& range : value->tiling.tile(value->is_replicated ? 0 : k)) part.offset.push_back(range.begin);
    parts.push_back(std::move(part));
  }
  return parts;
}

at::Tensor without_annotation(const at::Tensor& tensor) {
  const auto whole = split::whole(tensor);
  return split::find_value(tensor) == nullptr ? whole : whole.clone();
}

}  // namespace lockstep

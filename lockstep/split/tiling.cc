#include "lockstep/split/tiling.h"

#include <algorithm>

namespace lockstep::split {

std::vector<std::int64_t> even_cuts(std::int64_t size, std::int64_t count) {
  std::vector<std::int64_t> cuts = {0};
  for (std::int64_t part = 0; part < count; ++part) cuts.push_back(cuts.back() + size / count + (part < size % count ? 1 : 0));
  return cuts;
}

Tiling::Tiling(const std::vector<std::int64_t>& sizes) {
  for (const auto size : sizes) cuts_.push_back({0, size});
}

Tiling::Tiling(const std::vector<std::int64_t>& sizes, const std::vector<std::int64_t>& counts) {
  for (std::size_t d = 0; d < sizes.size(); ++d) cuts_.push_back(even_cuts(sizes[d], counts[d]));
}

Tiling Tiling::of_cuts(std::vector<std::vector<std::int64_t>> cuts) {
  Tiling tiling;
  tiling.cuts_ = std::move(cuts);
  return tiling;
}

std::vector<std::int64_t> Tiling::sizes() const {
  std::vector<std::int64_t> all;
  for (const auto& cuts : cuts_) all.push_back(cuts.back());
  return all;
}

std::size_t Tiling::tiles() const {
  std::size_t all = 1;
  for (const auto& cuts : cuts_) all *= cuts.size() - 1;
  return all;
}

std::vector<std::int64_t> Tiling::position(std::size_t index) const {
  std::vector<std::int64_t> position(cuts_.size());
  for (std::size_t d = cuts_.size(); d-- > 0;) {
    const auto parts = static_cast<std::size_t>(count(d));
    position[d] = static_cast<std::int64_t>(index % parts);
    index /= parts;
  }
  return position;
}

std::size_t Tiling::index(const std::vector<std::int64_t>& position) const {
  std::size_t index = 0;
  for (std::size_t d = 0; d < cuts_.size(); ++d)
    index = index * static_cast<std::size_t>(count(d)) + static_cast<std::size_t>(position[d]);
  return index;
}

Region Tiling::tile(std::size_t index) const {
  const auto at = position(index);
  Region region;
  for (std::size_t d = 0; d < cuts_.size(); ++d) {
    const auto part = static_cast<std::size_t>(at[d]);
    region.push_back({cuts_[d][part], cuts_[d][part + 1]});
  }
  return region;
}

Tiling Tiling::with(std::size_t dimension, std::vector<std::int64_t> cuts) const {
  auto other = *this;
  other.cuts_[dimension] = std::move(cuts);
  return other;
}

Tiling Tiling::without(std::size_t dimension) const {
  auto other = *this;
  other.cuts_.erase(other.cuts_.begin() + static_cast<std::ptrdiff_t>(dimension));
  return other;
}

Region whole_region(const std::vector<std::int64_t>& sizes) {
  Region region;
  for (const auto size : sizes) region.push_back({0, size});
  return region;
}

Region intersection(const Region& a, const Region& b) {
  Region both;
  for (std::size_t d = 0; d < a.size(); ++d) {
    const auto begin = std::max(a[d].begin, b[d].begin);
    both.push_back({begin, std::max(begin, std::min(a[d].end, b[d].end))});
  }
  return both;
}

bool is_empty(const Region& region) noexcept {
  return std::ranges::any_of(region, [](const Range& range) { return range.size() <= 0; });
}

}  // namespace lockstep::split

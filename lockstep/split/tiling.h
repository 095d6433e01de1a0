#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

namespace lockstep::split {

// The indices begin, ..., end - 1 of one dimension.
struct Range {
  std::int64_t begin = 0;
  std::int64_t end = 0;

  std::int64_t size() const noexcept { return end - begin; }
  friend bool operator==(const Range&, const Range&) = default;
};

// A part of a tensor: one range for each of its dimensions.
using Region = std::vector<Range>;

// How a tensor is cut into tiles: at some places of each dimension. Tiles are numbered row by row, the last dimension fastest.
class Tiling {
 public:
  Tiling() = default;
  // One tile.
  explicit Tiling(const std::vector<std::int64_t>& sizes);
  // Dimension d in counts[d] parts, whose sizes differ by at most one, larger ones first.
  Tiling(const std::vector<std::int64_t>& sizes, const std::vector<std::int64_t>& counts);
  // cuts[d]: 0, where the parts of dimension d end, its size.
  static Tiling of_cuts(std::vector<std::vector<std::int64_t>> cuts);

  std::size_t dimensions() const noexcept { return cuts_.size(); }
  std::vector<std::int64_t> sizes() const;
  std::int64_t count(std::size_t dimension) const { return static_cast<std::int64_t>(cuts_[dimension].size()) - 1; }
  bool is_cut(std::size_t dimension) const { return count(dimension) > 1; }
  const std::vector<std::int64_t>& cuts(std::size_t dimension) const { return cuts_[dimension]; }
  // How many tiles there are, at least one.
  std::size_t tiles() const;
  Region tile(std::size_t index) const;
  // Which part of each dimension the tile has, and back.
  std::vector<std::int64_t> position(std::size_t index) const;
  std::size_t index(const std::vector<std::int64_t>& position) const;

  // With other cuts of one dimension, whose size may be another.
  Tiling with(std::size_t dimension, std::vector<std::int64_t> cuts) const;
  Tiling without_cuts(std::size_t dimension, std::int64_t size) const { return with(dimension, {0, size}); }
  Tiling without(std::size_t dimension) const;

  friend bool operator==(const Tiling&, const Tiling&) = default;

 private:
  std::vector<std::vector<std::int64_t>> cuts_;
};

// 0, ..., size in `count` parts.
std::vector<std::int64_t> even_cuts(std::int64_t size, std::int64_t count);

// All of a tensor of these sizes.
Region whole_region(const std::vector<std::int64_t>& sizes);
// Nothing, where they do not meet in a dimension: its range is empty.
Region intersection(const Region& a, const Region& b);
bool is_empty(const Region& region) noexcept;

}  // namespace lockstep::split

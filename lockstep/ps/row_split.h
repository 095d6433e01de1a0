#pragma once

#include <cstdint>
#include <span>
#include <vector>

namespace lockstep::ps {

// Rows that are divided over shards in order: shard 0 has the first ones. A value.
class RowSplit {
 public:
  // A shard's number of rows each.
  explicit RowSplit(const std::vector<std::int64_t>& sizes);

  // `rows` over `shards`, or over as many as there are rows: sizes that differ by one at most, larger ones first. 13 over 5
  // is 3, 3, 3, 2, 2. Throws kInvalidArgument unless both are positive.
  static RowSplit div(std::int64_t rows, std::int64_t shards);
  // Whether the sizes are div's.
  bool is_div() const;

  std::size_t shards() const { return ends_.size(); }
  std::int64_t rows() const { return ends_.back(); }
  std::int64_t begin(std::size_t shard) const { return shard == 0 ? 0 : ends_[shard - 1]; }
  std::int64_t size(std::size_t shard) const { return ends_[shard] - begin(shard); }

  struct Place {
    std::size_t shard = 0;
    std::int64_t row = 0;  // of the shard
  };
  // REQUIRES: 0 <= row < rows().
  Place place_of(std::int64_t row) const;

  // What one shard has of a list of rows, in the list's order.
  struct Part {
    std::size_t shard = 0;
    std::vector<std::int64_t> rows = {};       // of the shard
    std::vector<std::int64_t> positions = {};  // in the list
  };
  // The shards that have any of these rows, in order. Throws kInvalidArgument for a row that is not there.
  std::vector<Part> route(std::span<const std::int64_t> rows) const;

 private:
  // Const after construction.
  std::vector<std::int64_t> ends_;  // of each shard: the first row after it
};

}  // namespace lockstep::ps

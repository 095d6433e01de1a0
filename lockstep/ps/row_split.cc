#include "lockstep/ps/row_split.h"

#include <algorithm>

#include "lockstep/base/error.h"
#include "lockstep/base/str.h"

namespace lockstep::ps {

RowSplit::RowSplit(const std::vector<std::int64_t>& sizes) {
  require(!sizes.empty(), "a split of rows needs one shard at least");
  std::int64_t end = 0;
  for (const auto size : sizes) {
    if (size < 0) throw Error(ErrorCode::kInvalidArgument, str("a shard has ", size, " rows; sizes are 0 or more"));
    ends_.push_back(end += size);
  }
}

RowSplit RowSplit::div(std::int64_t rows, std::int64_t shards) {
  if (rows < 1 || shards < 1)
    throw Error(ErrorCode::kInvalidArgument, str(rows, " rows over ", shards, " shards; there must be one of each at least"));
  shards = std::min(shards, rows);
  std::vector<std::int64_t> sizes;
  for (std::int64_t shard = 0; shard < shards; ++shard) sizes.push_back(rows / shards + (shard < rows % shards ? 1 : 0));
  return RowSplit(sizes);
}

bool RowSplit::is_div() const {
  const auto count = static_cast<std::int64_t>(shards());
  for (std::size_t shard = 0; shard < shards(); ++shard)
    if (size(shard) != rows() / count + (static_cast<std::int64_t>(shard) < rows() % count ? 1 : 0)) return false;
  return true;
}

RowSplit::Place RowSplit::place_of(std::int64_t row) const {
  const auto shard = static_cast<std::size_t>(std::ranges::upper_bound(ends_, row) - ends_.begin());
  return {shard, row - begin(shard)};
}

std::vector<RowSplit::Part> RowSplit::route(std::span<const std::int64_t> rows) const {
  std::vector<Part> parts(shards());
  for (std::size_t position = 0; position < rows.size(); ++position) {
    const auto row = rows[position];
    if (row < 0 || row >= this->rows())
      throw Error(ErrorCode::kInvalidArgument, str("row ", row, " at position ", position, " is not there; there are ",
                                                   this->rows(), " rows, and rows must be in [0, ", this->rows(), ")"));
    const auto place = place_of(row);
    parts[place.shard].rows.push_back(place.row);
    parts[place.shard].positions.push_back(static_cast<std::int64_t>(position));
  }
  for (std::size_t shard = 0; shard < parts.size(); ++shard) parts[shard].shard = shard;
  std::erase_if(parts, [](const Part& part) { return part.rows.empty(); });
  return parts;
}

}  // namespace lockstep::ps

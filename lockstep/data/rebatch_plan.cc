#include "lockstep/data/rebatch_plan.h"

#include <algorithm>

#include "lockstep/base/error.h"
#include "lockstep/base/str.h"

namespace lockstep {

std::vector<std::int64_t> balanced_parts(std::int64_t rows, std::int64_t parts) {
  require(rows >= 0 && parts >= 1, "balanced_parts: rows must not be negative, and there must be a part");
  std::vector<std::int64_t> sizes(static_cast<std::size_t>(parts), rows / parts);
  std::fill_n(sizes.begin(), rows % parts, rows / parts + 1);
  return sizes;
}

std::vector<std::int64_t> ceiling_parts(std::int64_t rows, std::int64_t parts) {
  require(rows >= 0 && parts >= 1, "ceiling_parts: rows must not be negative, and there must be a part");
  const auto each = (rows + parts - 1) / parts;
  std::vector<std::int64_t> sizes;
  for (std::int64_t part = 0; part < parts; ++part) {
    sizes.push_back(std::min(each, rows));
    rows -= sizes.back();
  }
  return sizes;
}

std::vector<std::int64_t> batch_sizes_for_worker(std::int64_t global_batch, std::int64_t workers,
                                                 std::int64_t replicas_per_worker, std::int64_t worker) {
  if (global_batch < 1 || workers < 1 || replicas_per_worker < 1 || worker < 0 || worker >= workers)
    throw Error(ErrorCode::kInvalidArgument,
                str("batch_sizes_for_worker(global_batch ", global_batch, ", workers ", workers, ", replicas_per_worker ",
                    replicas_per_worker, ", worker ", worker, "): sizes must be at least 1 and the worker one of them"));
  auto sizes = balanced_parts(global_batch, workers * replicas_per_worker);
  std::rotate(sizes.begin(), sizes.begin() + worker * replicas_per_worker, sizes.end());
  return sizes;
}

}  // namespace lockstep

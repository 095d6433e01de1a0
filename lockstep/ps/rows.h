#pragma once

#include <cstddef>
#include <cstdint>
#include <cstring>
#include <span>

#include "lockstep/base/fetch_early.h"

// Rows from all over a large table. They are nowhere in the processor's caches: each is asked for some rows before its turn.

namespace lockstep::ps {

// Calls fn(k, address of row ids[k]) in order. The ids must be rows of the table.
template <typename Byte, typename F>
void for_each_row(Byte* table, std::size_t row_bytes, std::span<const std::int64_t> ids, F&& fn) {
  constexpr std::size_t kAhead = 24;
  const auto row = [&](std::size_t k) { return table + static_cast<std::size_t>(ids[k]) * row_bytes; };
  for (std::size_t k = 0; k < std::min(kAhead, ids.size()); ++k) fetch_early(row(k), row_bytes);
  for (std::size_t k = 0; k < ids.size(); ++k) {
    if (k + kAhead < ids.size()) fetch_early(row(k + kAhead), row_bytes);
    fn(k, row(k));
  }
}

// Copies rows out of the table, one after the other.
inline void gather_rows(const std::byte* table, std::size_t row_bytes, std::span<const std::int64_t> ids, std::byte* into) {
  for_each_row(table, row_bytes, ids,
               [&](std::size_t k, const std::byte* row) { std::memcpy(into + k * row_bytes, row, row_bytes); });
}

// And into it. Of an id that repeats, the last row stays.
inline void scatter_rows(std::byte* table, std::size_t row_bytes, std::span<const std::int64_t> ids, const std::byte* rows) {
  for_each_row(table, row_bytes, ids,
               [&](std::size_t k, std::byte* row) { std::memcpy(row, rows + k * row_bytes, row_bytes); });
}

}  // namespace lockstep::ps

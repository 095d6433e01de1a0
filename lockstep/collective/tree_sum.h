#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

namespace lockstep {

enum class SumType { kFloat, kDouble, kInt64, kInt32 };
constexpr std::size_t size_of(SumType type) { return type == SumType::kFloat || type == SumType::kInt32 ? 4 : 8; }

// Which elements to sum, and by what to divide their sums (integers: by nothing).
struct SumRange {
  std::int64_t begin = 0;
  std::int64_t end = 0;
  int divisor = 1;
};

// outputs[k][i] = the sum over all inputs[r][i], for every i of the range and every k, in the canonical order:
// neighbours are added first, then neighbouring sums, ((r0+r1)+(r2+r3))+..., whatever the number of inputs.
// An output may be one of the inputs. Addresses are of the first element, whatever the range.
void tree_sum(SumType type, std::span<const void* const> inputs, std::span<void* const> outputs, SumRange range);

// out[i] = a[i] + b[i]; out may be a or b.
void add_arrays(SumType type, void* out, const void* a, const void* b, std::int64_t count);

// The same over any type that can be added: `add(a, b)` combines two neighbours. Consumes `values`.
template <typename Values, typename Add>
auto tree_fold(Values values, Add add) {
  auto count = values.size();
  while (count > 1) {
    std::size_t next = 0;
    for (std::size_t i = 0; i < count; i += 2) values[next++] = i + 1 < count ? add(values[i], values[i + 1]) : values[i];
    count = next;
  }
  return values[0];
}

}  // namespace lockstep

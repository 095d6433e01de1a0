#pragma once

#include <cstdint>
#include <span>

namespace lockstep {

enum class SumType { kFloat, kDouble, kInt64, kInt32 };

// outputs[k][i] = the sum over all inputs[r][i], for begin <= i < end and every k, in the canonical order:
// neighbours are added first, then neighbouring sums, ((r0+r1)+(r2+r3))+..., whatever the number of inputs.
// An output may be one of the inputs. Addresses are of the first element; `begin` and `end` count elements.
// Sums of floating-point numbers are divided by `divisor`.
void tree_sum(SumType type, std::span<const void* const> inputs, std::span<void* const> outputs, std::int64_t begin,
              std::int64_t end, int divisor = 1);

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

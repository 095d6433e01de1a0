#include "lockstep/collective/tree_sum.h"

#include <algorithm>
#include <type_traits>
#include <vector>

namespace lockstep {
namespace {

// A block stays in the first-level cache while the tree above it is folded.
constexpr std::int64_t kBlock = 1024;

#if defined(__x86_64__)
// The library is built for any x86-64; these loops are compiled a second time for processors with 256-bit registers.
#define LOCKSTEP_WIDE __attribute__((target("avx2"), optimize("O3")))
bool has_wide() { return __builtin_cpu_supports("avx2"); }
#else
#define LOCKSTEP_WIDE
bool has_wide() { return true; }
#endif

template <typename T>
struct Narrow {
  static void add(T* out, const T* a, const T* b, std::int64_t count) {
    for (std::int64_t i = 0; i < count; ++i) out[i] = a[i] + b[i];
  }
  static void divide(T* values, T divisor, std::int64_t count) {
    for (std::int64_t i = 0; i < count; ++i) values[i] /= divisor;
  }
  static void add_to_both(T* out0, T* out1, const T* a, const T* b, std::int64_t count) {
    for (std::int64_t i = 0; i < count; ++i) {
      const T sum = a[i] + b[i];
      out0[i] = sum;
      out1[i] = sum;
    }
  }
  static void average_to_both(T* out0, T* out1, const T* a, const T* b, std::int64_t count) {
    for (std::int64_t i = 0; i < count; ++i) {
      const T average = (a[i] + b[i]) / 2;
      out0[i] = average;
      out1[i] = average;
    }
  }
};

template <typename T>
struct Wide {
  LOCKSTEP_WIDE static void add(T* out, const T* a, const T* b, std::int64_t count) {
    for (std::int64_t i = 0; i < count; ++i) out[i] = a[i] + b[i];
  }
  LOCKSTEP_WIDE static void divide(T* values, T divisor, std::int64_t count) {
    for (std::int64_t i = 0; i < count; ++i) values[i] /= divisor;
  }
  LOCKSTEP_WIDE static void add_to_both(T* out0, T* out1, const T* a, const T* b, std::int64_t count) {
    for (std::int64_t i = 0; i < count; ++i) {
      const T sum = a[i] + b[i];
      out0[i] = sum;
      out1[i] = sum;
    }
  }
  LOCKSTEP_WIDE static void average_to_both(T* out0, T* out1, const T* a, const T* b, std::int64_t count) {
    for (std::int64_t i = 0; i < count; ++i) {
      const T average = (a[i] + b[i]) / 2;
      out0[i] = average;
      out1[i] = average;
    }
  }
};

// Folds one block of all inputs into `level` (one row of kBlock per pair), and returns the row with the sum.
template <typename T, typename Kernel>
T* fold_block(std::span<const void* const> inputs, std::int64_t begin, std::int64_t count, std::vector<T>& scratch) {
  const auto row = [&](std::size_t i) { return scratch.data() + static_cast<std::int64_t>(i) * kBlock; };
  const auto input = [&](std::size_t i) { return static_cast<const T*>(inputs[i]) + begin; };
  std::size_t rows = 0;
  for (std::size_t i = 0; i < inputs.size(); i += 2, ++rows) {
    if (i + 1 < inputs.size()) Kernel::add(row(rows), input(i), input(i + 1), count);
    else std::copy_n(input(i), count, row(rows));
  }
  while (rows > 1) {
    std::size_t next = 0;
    for (std::size_t i = 0; i < rows; i += 2, ++next) {
      if (i + 1 < rows) Kernel::add(row(next), row(i), row(i + 1), count);
      else std::copy_n(row(i), count, row(next));
    }
    rows = next;
  }
  return row(0);
}

template <typename T, typename Kernel>
void sum_range(std::span<const void* const> inputs, std::span<void* const> outputs, SumRange range) {
  const int divisor = std::is_floating_point_v<T> ? range.divisor : 1;
  const auto count = range.end - range.begin;
  const auto input = [&](std::size_t r) { return static_cast<const T*>(inputs[r]) + range.begin; };
  const auto output = [&](std::size_t k) { return static_cast<T*>(outputs[k]) + range.begin; };
  if (inputs.size() == 2 && outputs.size() == 2 && divisor <= 2) {
    const auto share = divisor == 1 ? Kernel::add_to_both : Kernel::average_to_both;
    share(output(0), output(1), input(0), input(1), count);
    return;
  }
  std::vector<T> scratch(static_cast<std::size_t>(kBlock) * ((inputs.size() + 1) / 2));
  for (std::int64_t at = 0; at < count; at += kBlock) {
    const auto size = std::min(kBlock, count - at);
    T* sum = fold_block<T, Kernel>(inputs, range.begin + at, size, scratch);
    if (divisor != 1) Kernel::divide(sum, static_cast<T>(divisor), size);
    for (std::size_t k = 0; k < outputs.size(); ++k) std::copy_n(sum, size, output(k) + at);
  }
}

template <typename T>
void sum_typed(std::span<const void* const> inputs, std::span<void* const> outputs, SumRange range) {
  if (has_wide()) sum_range<T, Wide<T>>(inputs, outputs, range);
  else sum_range<T, Narrow<T>>(inputs, outputs, range);
}

template <typename T>
void add_typed(void* out, const void* a, const void* b, std::int64_t count) {
  const auto add = has_wide() ? Wide<T>::add : Narrow<T>::add;
  add(static_cast<T*>(out), static_cast<const T*>(a), static_cast<const T*>(b), count);
}

}  // namespace

void add_arrays(SumType type, void* out, const void* a, const void* b, std::int64_t count) {
  switch (type) {
    case SumType::kFloat: return add_typed<float>(out, a, b, count);
    case SumType::kDouble: return add_typed<double>(out, a, b, count);
    case SumType::kInt64: return add_typed<std::uint64_t>(out, a, b, count);
    case SumType::kInt32: return add_typed<std::uint32_t>(out, a, b, count);
  }
}

void tree_sum(SumType type, std::span<const void* const> inputs, std::span<void* const> outputs, SumRange range) {
  if (range.end <= range.begin || inputs.empty()) return;
  // Unsigned: integer sums wrap around, as LibTorch's do.
  switch (type) {
    case SumType::kFloat: return sum_typed<float>(inputs, outputs, range);
    case SumType::kDouble: return sum_typed<double>(inputs, outputs, range);
    case SumType::kInt64: return sum_typed<std::uint64_t>(inputs, outputs, range);
    case SumType::kInt32: return sum_typed<std::uint32_t>(inputs, outputs, range);
  }
}

}  // namespace lockstep

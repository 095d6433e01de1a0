#include "lockstep/device/max_pool.h"

#include <ATen/ATen.h>
#include <ATen/Parallel.h>
#include <ATen/ops/max_pool2d_with_indices_cpu_dispatch.h>
#include <torch/library.h>
#include <torch/version.h>

#include <algorithm>
#include <atomic>
#include <cstdint>
#include <cstring>
#include <limits>
#include <string>
#include <tuple>
#include <type_traits>
#include <utility>

#include "lockstep/base/environment.h"

namespace lockstep {
namespace {

std::atomic<bool> g_is_used{false};

#if defined(__x86_64__)
// Compiled a second time for processors with 256-bit registers.
#define LOCKSTEP_WIDE __attribute__((target("avx2")))
bool has_wide() {
  static const bool has = __builtin_cpu_supports("avx2");
  return has;
}
#else
#define LOCKSTEP_WIDE
bool has_wide() { return true; }
#endif
#define LOCKSTEP_INLINE [[gnu::always_inline]] inline

struct Pooling {
  std::int64_t rows = 0, columns = 0;  // of an image
  std::int64_t window_rows = 0, window_columns = 0;
  std::int64_t row_step = 0, column_step = 0;
  std::int64_t out_rows = 0, out_columns = 0;
};

// Windows side by side. The compiler does not find this in loops over arrays: 20 times slower.
template <typename T>
struct Lanes;
template <>
struct Lanes<float> {
  static constexpr std::int64_t kCount = 8;
  typedef float Numbers __attribute__((vector_size(32)));
  typedef std::int32_t Places __attribute__((vector_size(32)));
  static constexpr Places kNumbered = {0, 1, 2, 3, 4, 5, 6, 7};
  LOCKSTEP_INLINE static void every_second(const Numbers& a, const Numbers& b, Numbers& out) {
    out = __builtin_shufflevector(a, b, 0, 2, 4, 6, 8, 10, 12, 14);
  }
};
template <>
struct Lanes<double> {
  static constexpr std::int64_t kCount = 4;
  typedef double Numbers __attribute__((vector_size(32)));
  typedef std::int64_t Places __attribute__((vector_size(32)));
  static constexpr Places kNumbered = {0, 1, 2, 3};
  LOCKSTEP_INLINE static void every_second(const Numbers& a, const Numbers& b, Numbers& out) {
    out = __builtin_shufflevector(a, b, 0, 2, 4, 6);
  }
};

// Every `step`th number from there on; reads kCount * step.
template <typename T, int step>
LOCKSTEP_INLINE void load(const T* from, typename Lanes<T>::Numbers& out) {
  using L = Lanes<T>;
  if constexpr (step == 1) {
    std::memcpy(&out, from, sizeof out);
  } else {
    typename L::Numbers a, b;
    std::memcpy(&a, from, sizeof a);
    std::memcpy(&b, from + L::kCount, sizeof b);
    L::every_second(a, b, out);
  }
}

// The greatest of each window, and where it is in the image. As LibTorch: the first of equal ones, and a NaN whatever else
// there is.
template <typename T, int step>
LOCKSTEP_INLINE void pool_windows(const T* in, const Pooling& pooling, std::int64_t place, typename Lanes<T>::Numbers& best,
                                  typename Lanes<T>::Places& at) {
  using L = Lanes<T>;
  using Place = std::remove_cvref_t<decltype(at[0])>;
  const typename L::Places spread = L::kNumbered * Place{step};
  load<T, step>(in, best);
  at = spread + static_cast<Place>(place);
  for (std::int64_t i = 0; i < pooling.window_rows; ++i)
    for (std::int64_t j = i == 0 ? 1 : 0; j < pooling.window_columns; ++j) {
      const auto offset = i * pooling.columns + j;
      typename L::Numbers values;
      load<T, step>(in + offset, values);
      const typename L::Places is_taken = (values > best) | (values != values);
      best = is_taken ? values : best;
      at = is_taken ? spread + static_cast<Place>(place + offset) : at;
    }
}

template <typename T>
LOCKSTEP_INLINE void pool_window(const T* in, const Pooling& pooling, std::int64_t place, T& best, std::int64_t& at) {
  best = *in;
  at = place;
  for (std::int64_t i = 0; i < pooling.window_rows; ++i)
    for (std::int64_t j = 0; j < pooling.window_columns; ++j) {
      const auto offset = i * pooling.columns + j;
      if (!(in[offset] > best) && in[offset] == in[offset]) continue;
      best = in[offset];
      at = place + offset;
    }
}

// One image. `after`: behind the last number that may be read, maybe of another image.
template <typename T, int step>
LOCKSTEP_INLINE void pool_image(const T* image, const T* after, const Pooling& pooling, T* out, std::int64_t* places) {
  using L = Lanes<T>;
  const auto reach = (pooling.window_rows - 1) * pooling.columns + pooling.window_columns - 1 + L::kCount * step;
  for (std::int64_t row = 0; row < pooling.out_rows; ++row)
    for (std::int64_t column = 0; column < pooling.out_columns;) {
      const auto place = row * pooling.row_step * pooling.columns + column * step;
      if (after - (image + place) < reach) {
        pool_window(image + place, pooling, place, *out++, *places++);
        ++column;
        continue;
      }
      typename L::Numbers best;
      typename L::Places at;
      pool_windows<T, step>(image + place, pooling, place, best, at);
      const auto count = std::min(L::kCount, pooling.out_columns - column);
      for (std::int64_t k = 0; k < count; ++k) *out++ = best[k];
      for (std::int64_t k = 0; k < count; ++k) *places++ = at[k];
      column += count;
    }
}

template <typename T, int step>
void pool_narrow(const T* image, const T* after, const Pooling& pooling, T* out, std::int64_t* places) {
  pool_image<T, step>(image, after, pooling, out, places);
}
template <typename T, int step>
LOCKSTEP_WIDE void pool_wide(const T* image, const T* after, const Pooling& pooling, T* out, std::int64_t* places) {
  pool_image<T, step>(image, after, pooling, out, places);
}

template <typename T>
using PoolImage = void (*)(const T*, const T*, const Pooling&, T*, std::int64_t*);

template <typename T>
PoolImage<T> pool_of(std::int64_t step) {
  if (step == 1) return has_wide() ? pool_wide<T, 1> : pool_narrow<T, 1>;
  return has_wide() ? pool_wide<T, 2> : pool_narrow<T, 2>;
}

template <typename T>
void pool_all(const at::Tensor& input, const Pooling& pooling, const at::Tensor& output, const at::Tensor& places) {
  const auto size = pooling.rows * pooling.columns;
  const auto out_size = pooling.out_rows * pooling.out_columns;
  const auto* const in = static_cast<const T*>(input.data_ptr());
  auto* const out = static_cast<T*>(output.data_ptr());
  auto* const at = static_cast<std::int64_t*>(places.data_ptr());
  const auto pool = pool_of<T>(pooling.column_step);
  constexpr std::int64_t kWorthAThread = 32'768;  // numbers
  at::parallel_for(0, input.numel() / size, std::max<std::int64_t>(1, kWorthAThread / size), [&](auto begin, auto end) {
    for (auto k = begin; k < end; ++k) pool(in + k * size, in + input.numel(), pooling, out + k * out_size, at + k * out_size);
  });
}

// One number for both, or two.
std::pair<std::int64_t, std::int64_t> both(at::IntArrayRef given) { return {given[0], given[given.size() - 1]}; }
bool are_all(at::IntArrayRef given, std::int64_t number) {
  return std::all_of(given.begin(), given.end(), [&](std::int64_t one) { return one == number; });
}

// Whether it is one of those that are pooled here.
bool is_ours(const at::Tensor& input, at::IntArrayRef window, at::IntArrayRef step, at::IntArrayRef padding,
             at::IntArrayRef dilation, bool rounds_up) {
  if (!g_is_used.load(std::memory_order_relaxed) || rounds_up || !are_all(padding, 0) || !are_all(dilation, 1)) return false;
  if (window.empty() || window.size() > 2 || step.size() > 2 || (input.dim() != 3 && input.dim() != 4)) return false;
  if (input.scalar_type() != at::kFloat && input.scalar_type() != at::kDouble) return false;
  if (input.numel() == 0 || !input.is_contiguous() || input.is_neg() ||
      input.suggest_memory_format() != at::MemoryFormat::Contiguous)
    return false;
  const auto [window_rows, window_columns] = both(window);
  const auto [row_step, column_step] = step.empty() ? both(window) : both(step);
  const auto rows = input.size(-2), columns = input.size(-1);
  return window_rows >= 1 && window_columns >= 1 && window_rows <= rows && window_columns <= columns && row_step >= 1 &&
         column_step >= 1 && column_step <= 2 && rows <= std::numeric_limits<std::int32_t>::max() / columns;
}

std::tuple<at::Tensor, at::Tensor> max_pool(const at::Tensor& input, at::IntArrayRef window, at::IntArrayRef step,
                                            at::IntArrayRef padding, at::IntArrayRef dilation, bool rounds_up) {
  if (!is_ours(input, window, step, padding, dilation, rounds_up))
    return at::cpu::max_pool2d_with_indices(input, window, step, padding, dilation, rounds_up);
  Pooling pooling{input.size(-2), input.size(-1)};
  std::tie(pooling.window_rows, pooling.window_columns) = both(window);
  std::tie(pooling.row_step, pooling.column_step) = step.empty() ? both(window) : both(step);
  pooling.out_rows = (pooling.rows - pooling.window_rows) / pooling.row_step + 1;
  pooling.out_columns = (pooling.columns - pooling.window_columns) / pooling.column_step + 1;
  auto sizes = input.sizes().vec();
  sizes[sizes.size() - 2] = pooling.out_rows;
  sizes[sizes.size() - 1] = pooling.out_columns;
  auto output = at::empty(sizes, input.options());
  auto places = at::empty(sizes, input.options().dtype(at::kLong));
  if (input.scalar_type() == at::kFloat) pool_all<float>(input, pooling, output, places);
  else pool_all<double>(input, pooling, output, places);
  return {output, places};
}

// LibTorch warns whoever takes the place of one of its functions.
#if TORCH_VERSION_MAJOR >= 2
namespace warnings = c10::WarningUtils;
struct Silence final : c10::WarningHandler {
  void process(const c10::Warning&) override {}
};
#else
namespace warnings = c10::Warning;
struct Silence final : c10::WarningHandler {
  void process(const c10::SourceLocation&, const std::string&, bool) override {}
};
#endif

// When the library is loaded: nobody computes then. Until use_own_max_pool() it only passes calls on.
const bool g_is_registered = [] {
  Silence silence;
  const warnings::WarningHandlerGuard guard(&silence);
  static auto* const library = new torch::Library(torch::Library::IMPL, "aten", c10::DispatchKey::CPU, __FILE__, __LINE__);
  library->impl("max_pool2d_with_indices", max_pool);
  return true;
}();

}  // namespace

void use_own_max_pool() { g_is_used = g_is_registered && Environment().get("LOCKSTEP_KERNELS") != "libtorch"; }

}  // namespace lockstep

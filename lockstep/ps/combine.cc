#include "lockstep/ps/combine.h"

#include <ATen/ATen.h>
#include <ATen/Dispatch.h>

#include "lockstep/base/error.h"
#include "lockstep/ps/rows.h"

namespace lockstep::ps {
namespace {

using Kind = Operation::Kind;

// Integers are computed without a sign, where nothing overflows.
template <typename T, typename F>
T wrapping(T a, T b, F fn) {
  if constexpr (std::is_integral_v<T>) return static_cast<T>(fn(static_cast<std::uint64_t>(a), static_cast<std::uint64_t>(b)));
  else return static_cast<T>(fn(a, b));
}

struct Plus {
  template <typename T>
  T operator()(T a, T b) const {
    return wrapping(a, b, [](auto x, auto y) { return x + y; });
  }
};
struct Minus {
  template <typename T>
  T operator()(T a, T b) const {
    return wrapping(a, b, [](auto x, auto y) { return x - y; });
  }
};
struct Times {
  template <typename T>
  T operator()(T a, T b) const {
    return wrapping(a, b, [](auto x, auto y) { return x * y; });
  }
};
struct Over {
  template <typename T>
  T operator()(T a, T b) const {
    if constexpr (std::is_signed_v<T> && std::is_integral_v<T>)
      if (b == -1) return Minus()(T{0}, a);  // the processor stops at the smallest number
    return static_cast<T>(a / b);
  }
};
struct Least {  // NaN wins, as in at::minimum
  template <typename T>
  T operator()(T a, T b) const {
    return a != a || a < b ? a : b;
  }
};
struct Most {
  template <typename T>
  T operator()(T a, T b) const {
    return a != a || a > b ? a : b;
  }
};

// Calls fn with the operation's formula.
template <typename F>
void with_formula(Kind kind, F fn) {
  switch (kind) {
    case Kind::kAdd:
    case Kind::kAddRows: return fn(Plus());
    case Kind::kSub:
    case Kind::kSubRows: return fn(Minus());
    case Kind::kMulRows: return fn(Times());
    case Kind::kDivRows: return fn(Over());
    case Kind::kMinRows: return fn(Least());
    case Kind::kMaxRows: return fn(Most());
    default: throw Error(ErrorCode::kInternal, "an operation without a formula");
  }
}

}  // namespace

void combine(Kind kind, at::Tensor& value, const at::Tensor& given) {
  AT_DISPATCH_ALL_TYPES_AND2(at::kHalf, at::kBFloat16, value.scalar_type(), "combine", [&] {
    auto* const into = value.data_ptr<scalar_t>();
    const auto* const from = given.data_ptr<scalar_t>();
    with_formula(kind, [&](auto formula) {
      for (std::int64_t i = 0; i < value.numel(); ++i) into[i] = formula(into[i], from[i]);
    });
  });
}

void combine_rows(Kind kind, at::Tensor& value, std::span<const std::int64_t> ids, const at::Tensor& rows) {
  if (rows.numel() == 0) return;
  AT_DISPATCH_ALL_TYPES_AND2(at::kHalf, at::kBFloat16, value.scalar_type(), "combine_rows", [&] {
    const auto width = static_cast<std::size_t>(rows.numel()) / ids.size();
    const auto* const from = rows.data_ptr<scalar_t>();
    with_formula(kind, [&](auto formula) {
      for_each_row(static_cast<std::byte*>(value.data_ptr()), width * sizeof(scalar_t), ids,
                   [&](std::size_t k, std::byte* row) {
                     auto* const into = reinterpret_cast<scalar_t*>(row);
                     for (std::size_t i = 0; i < width; ++i) into[i] = formula(into[i], from[k * width + i]);
                   });
    });
  });
}

bool has_zero_divisor(const at::Tensor& given) {
  if (!at::isIntegralType(given.scalar_type(), /*includeBool=*/false)) return false;
  return AT_DISPATCH_INTEGRAL_TYPES(given.scalar_type(), "has_zero_divisor", [&] {
    const std::span all(given.data_ptr<scalar_t>(), static_cast<std::size_t>(given.numel()));
    return std::ranges::find(all, scalar_t{0}) != all.end();
  });
}

}  // namespace lockstep::ps

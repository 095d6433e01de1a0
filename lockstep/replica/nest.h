#pragma once

#include <array>
#include <cstdint>
#include <map>
#include <memory>
#include <string>
#include <tuple>
#include <type_traits>
#include <unordered_map>
#include <utility>
#include <vector>

#include "lockstep/base/str.h"
#include "lockstep/collective/indexed_slices.h"
#include "lockstep/fwd.h"

// Walks through structures of tensors: tuples, pairs, arrays, vectors, maps and plain structs, nested at will.

namespace lockstep::nest {

template <typename T>
struct IsVector : std::false_type {};
template <typename... A>
struct IsVector<std::vector<A...>> : std::true_type {};

template <typename T>
struct IsMap : std::false_type {};
template <typename... A>
struct IsMap<std::map<A...>> : std::true_type {};
template <typename... A>
struct IsMap<std::unordered_map<A...>> : std::true_type {};

// Has std::tuple_size: tuple, pair, array.
template <typename T>
concept TupleLike = requires {
  std::tuple_size<T>::value;
};

// A type that lists its own tensors: `void lockstep_leaves(visitor)`.
template <typename T>
concept ListsLeaves = requires(T& value) {
  value.lockstep_leaves([](at::Tensor&) {});
};

template <typename T>
concept Number = std::is_arithmetic_v<T> && !std::is_same_v<T, bool>;

namespace detail {

struct Any {
  template <typename T>
  operator T() const noexcept;  // NOLINT: only for counting fields
};

template <typename T, std::size_t... I>
constexpr bool takes_fields(std::index_sequence<I...>) {
  return requires { T{((void)I, Any{})...}; };
}

constexpr std::size_t kMostFields = 12;

template <typename T, std::size_t N = kMostFields>
constexpr std::size_t field_count() {
  if constexpr (takes_fields<T>(std::make_index_sequence<N>())) return N;
  else if constexpr (N == 0) return 0;
  else return field_count<T, N - 1>();
}

// References to the fields of a plain struct of up to 12 fields.
template <typename T>
auto tie_fields(T& value) {
  constexpr auto n = field_count<std::remove_const_t<T>>();
  if constexpr (n == 0) {
    return std::tie();
  } else if constexpr (n == 1) {
    auto& [a] = value;
    return std::tie(a);
  } else if constexpr (n == 2) {
    auto& [a, b] = value;
    return std::tie(a, b);
  } else if constexpr (n == 3) {
    auto& [a, b, c] = value;
    return std::tie(a, b, c);
  } else if constexpr (n == 4) {
    auto& [a, b, c, d] = value;
    return std::tie(a, b, c, d);
  } else if constexpr (n == 5) {
    auto& [a, b, c, d, e] = value;
    return std::tie(a, b, c, d, e);
  } else if constexpr (n == 6) {
    auto& [a, b, c, d, e, f] = value;
    return std::tie(a, b, c, d, e, f);
  } else if constexpr (n == 7) {
    auto& [a, b, c, d, e, f, g] = value;
    return std::tie(a, b, c, d, e, f, g);
  } else if constexpr (n == 8) {
    auto& [a, b, c, d, e, f, g, h] = value;
    return std::tie(a, b, c, d, e, f, g, h);
  } else if constexpr (n == 9) {
    auto& [a, b, c, d, e, f, g, h, i] = value;
    return std::tie(a, b, c, d, e, f, g, h, i);
  } else if constexpr (n == 10) {
    auto& [a, b, c, d, e, f, g, h, i, j] = value;
    return std::tie(a, b, c, d, e, f, g, h, i, j);
  } else if constexpr (n == 11) {
    auto& [a, b, c, d, e, f, g, h, i, j, k] = value;
    return std::tie(a, b, c, d, e, f, g, h, i, j, k);
  } else {
    auto& [a, b, c, d, e, f, g, h, i, j, k, l] = value;
    return std::tie(a, b, c, d, e, f, g, h, i, j, k, l);
  }
}

}  // namespace detail

// A struct without constructors, bases or private members.
template <typename T>
concept PlainStruct = std::is_class_v<T> && std::is_aggregate_v<T> && !TupleLike<T> && !std::is_same_v<T, IndexedSlices>;

// Calls visitor(leaf) for every tensor, IndexedSlices and number in `value`, in order; visitor.branch(text) for every
// place where two structures of one type can differ (a vector's length, a map's key), when the visitor has it.
template <typename T, typename Visitor>
void for_each_leaf(T& value, Visitor&& visitor) {
  using Plain = std::remove_const_t<T>;
  const auto branch = [&](const auto& what) {
    if constexpr (requires { visitor.branch(std::string()); }) visitor.branch(what);
  };
  if constexpr (std::is_same_v<Plain, at::Tensor> || std::is_same_v<Plain, IndexedSlices> || Number<Plain>) {
    visitor(value);
  } else if constexpr (ListsLeaves<Plain>) {
    value.lockstep_leaves(visitor);
  } else if constexpr (IsVector<Plain>::value) {
    branch("length " + std::to_string(value.size()));
    for (auto& item : value) for_each_leaf(item, visitor);
  } else if constexpr (IsMap<Plain>::value) {
    // In key order, also for hash maps: the order must be the same in every replica.
    std::map<typename Plain::key_type,
             std::conditional_t<std::is_const_v<T>, const typename Plain::mapped_type, typename Plain::mapped_type>*>
        sorted;
    for (auto& [key, item] : value) sorted.emplace(key, &item);
    branch("length " + std::to_string(value.size()));
    for (auto& [key, item] : sorted) {
      branch(lockstep::str("key ", key));
      for_each_leaf(*item, visitor);
    }
  } else if constexpr (TupleLike<Plain>) {
    std::apply([&](auto&... items) { (for_each_leaf(items, visitor), ...); }, value);
  } else if constexpr (PlainStruct<Plain>) {
    auto fields = detail::tie_fields(value);
    std::apply([&](auto&... items) { (for_each_leaf(items, visitor), ...); }, fields);
  }
}

}  // namespace lockstep::nest

namespace lockstep::internal {

// The leaves of one structure, gathered for a collective. Numbers travel as scalar tensors.
struct LeafList {
  std::vector<at::Tensor*> dense;
  std::vector<IndexedSlices*> sparse;
  std::vector<std::string> branches;

  // A split tensor is made whole: what is combined over replicas is read in memory.
  void operator()(at::Tensor& leaf);
  void operator()(IndexedSlices& leaf) { sparse.push_back(&leaf); }
  template <nest::Number N>
  void operator()(N& leaf) {
    if constexpr (std::is_integral_v<N>)
      add_integer(static_cast<std::int64_t>(leaf), &leaf,
                  [](void* to, std::int64_t value) { *static_cast<N*>(to) = static_cast<N>(value); });
    else
      add_real(static_cast<double>(leaf), &leaf, [](void* to, double value) { *static_cast<N*>(to) = static_cast<N>(value); });
  }
  void branch(const std::string& text) { branches.push_back(text); }

  LeafList();
  ~LeafList();
  LeafList(const LeafList&) = delete;
  LeafList& operator=(const LeafList&) = delete;

  // Puts the scalar tensors' values back into the numbers.
  void write_back();

  // A number that is equal for structures with equal lengths and keys.
  std::int64_t structure() const;

  // Throws kUnimplemented when there is an IndexedSlices.
  void require_dense(const char* what) const;

 private:
  struct Numbers;
  void add_integer(std::int64_t value, void* to, void (*write)(void*, std::int64_t));
  void add_real(double value, void* to, void (*write)(void*, double));

  std::unique_ptr<Numbers> numbers_;
};

}  // namespace lockstep::internal

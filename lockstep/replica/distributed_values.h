#pragma once

#include <map>
#include <memory>
#include <ostream>
#include <span>
#include <string>
#include <tuple>
#include <type_traits>
#include <utility>
#include <vector>

#include "lockstep/replica/nest.h"

namespace lockstep {

namespace internal {

// The current replica's position for a value of `count` components. Throws kInvalidArgument outside every replica.
std::size_t component_here(std::size_t count, const char* kind);
std::size_t component_or_first(std::size_t count) noexcept;
// `index`, which must be below `count`.
std::size_t require_component(std::size_t index, std::size_t count, const char* kind);

template <typename T>
void print_value(std::ostream& out, const T& value) {
  // Containers first: glog, which LibTorch's headers may bring, prints them too, in a way of its own.
  if constexpr (nest::IsVector<T>::value) {
    out << "[";
    for (std::size_t i = 0; i < value.size(); ++i) print_value(out << (i > 0 ? ", " : ""), value[i]);
    out << "]";
  } else if constexpr (nest::IsMap<T>::value) {
    out << "{";
    const char* comma = "";
    for (const auto& [key, item] : value) {
      out << comma << key << ": ";
      print_value(out, item);
      comma = ", ";
    }
    out << "}";
  } else if constexpr (nest::TupleLike<T>) {
    out << "(";
    const char* comma = "";
    std::apply([&](const auto&... items) { ((out << comma, print_value(out, items), comma = ", "), ...); }, value);
    out << ")";
  } else if constexpr (requires { out << value; }) {
    out << value;
  } else if constexpr (std::is_same_v<T, IndexedSlices>) {
    out << "IndexedSlices(...)";
  } else if constexpr (nest::PlainStruct<T>) {
    print_value(out, nest::detail::tie_fields(value));
  } else {
    out << "<value>";
  }
}

}  // namespace internal

// One value for each local replica. What run() returns and what a distributed dataset hands out.
template <typename T>
class PerReplica {
 public:
  using value_type = T;
  using const_reference = typename std::vector<T>::const_reference;  // T const&; of bool a value

  PerReplica() = default;
  explicit PerReplica(std::vector<T> values) : values_(std::move(values)) {}

  std::size_t size() const noexcept { return values_.size(); }
  const std::vector<T>& values() const noexcept { return values_; }
  // Throws kInvalidArgument when there is no such component.
  const_reference operator[](std::size_t replica) const {
    return values_[internal::require_component(replica, values_.size(), "PerReplica")];
  }
  typename std::vector<T>::reference operator[](std::size_t replica) {
    return values_[internal::require_component(replica, values_.size(), "PerReplica")];
  }
  auto begin() const { return values_.begin(); }
  auto end() const { return values_.end(); }

  // The current replica's value. Throws kInvalidArgument outside run(): there it has no single value; reduce() it,
  // gather() it or take experimental_local_results().
  const_reference local() const { return values_[internal::component_here(values_.size(), "PerReplica")]; }

  friend std::ostream& operator<<(std::ostream& out, const PerReplica& value) {
    return print_components(out, "PerReplica", value.values_);
  }

  static std::ostream& print_components(std::ostream& out, const char* kind, const std::vector<T>& values) {
    out << kind << ":{\n";
    for (std::size_t i = 0; i < values.size(); ++i) {
      out << "  " << i << ": ";
      internal::print_value(out, values[i]);
      out << (i + 1 < values.size() ? ",\n" : "\n");
    }
    return out << "}";
  }

 private:
  std::vector<T> values_;
};

// One value for each local replica, all equal. What a reduction to the replicas' devices gives.
template <typename T>
class Mirrored {
 public:
  using value_type = T;
  using const_reference = typename std::vector<T>::const_reference;

  Mirrored() = default;
  explicit Mirrored(std::vector<T> values) : values_(std::move(values)) {}

  std::size_t size() const noexcept { return values_.size(); }
  const std::vector<T>& values() const noexcept { return values_; }
  // Throws kInvalidArgument when there is no such component.
  const_reference operator[](std::size_t replica) const {
    return values_[internal::require_component(replica, values_.size(), "Mirrored")];
  }
  auto begin() const { return values_.begin(); }
  auto end() const { return values_.end(); }

  // The current replica's copy; outside run() the first.
  const_reference get() const { return (*this)[internal::component_or_first(values_.size())]; }

  friend std::ostream& operator<<(std::ostream& out, const Mirrored& value) {
    return PerReplica<T>::print_components(out, "Mirrored", value.values_);
  }

 private:
  std::vector<T> values_;
};

template <typename T>
struct IsDistributed : std::false_type {};
template <typename T>
struct IsDistributed<PerReplica<T>> : std::true_type {};
template <typename T>
struct IsDistributed<Mirrored<T>> : std::true_type {};

namespace internal {

template <typename T>
struct HasDistributed : IsDistributed<T> {};
template <typename... A>
struct HasDistributed<std::vector<A...>> : HasDistributed<typename std::vector<A...>::value_type> {};
template <typename Key, typename T, typename... A>
struct HasDistributed<std::map<Key, T, A...>> : HasDistributed<T> {};
template <typename Key, typename T, typename... A>
struct HasDistributed<std::unordered_map<Key, T, A...>> : HasDistributed<T> {};
template <typename... A>
struct HasDistributed<std::tuple<A...>> : std::disjunction<HasDistributed<A>...> {};
template <typename A, typename B>
struct HasDistributed<std::pair<A, B>> : std::disjunction<HasDistributed<A>, HasDistributed<B>> {};

}  // namespace internal

// `value` as replica r sees it: a distributed value becomes its component r, also as a part of a tuple or pair, an item of
// a vector or a value of a map (which becomes a std::map), nested at will; everything else is passed as it is.
template <typename T>
auto select_replica(int replica, const T& value) {
  const auto r = static_cast<std::size_t>(replica);
  if constexpr (!internal::HasDistributed<T>::value) {
    return value;
  } else if constexpr (IsDistributed<T>::value) {
    return value[r];
  } else if constexpr (nest::IsVector<T>::value) {
    std::vector<decltype(select_replica(replica, value[0]))> selected;
    for (const auto& item : value) selected.push_back(select_replica(replica, item));
    return selected;
  } else if constexpr (nest::IsMap<T>::value) {
    std::map<typename T::key_type, decltype(select_replica(replica, value.begin()->second))> selected;
    for (const auto& [key, item] : value) selected.emplace(key, select_replica(replica, item));
    return selected;
  } else if constexpr (requires { []<typename... A>(const std::tuple<A...>&) {}(value); }) {
    return std::apply([&](const auto&... items) { return std::make_tuple(select_replica(replica, items)...); }, value);
  } else {
    return std::make_pair(select_replica(replica, value.first), select_replica(replica, value.second));
  }
}

namespace internal {

// Calls check(number of components) for every distributed value that select_replica replaces.
template <typename T, typename Check>
void for_each_distributed(const T& value, const Check& check) {
  if constexpr (IsDistributed<T>::value) {
    check(value.size());
  } else if constexpr (HasDistributed<T>::value && nest::IsVector<T>::value) {
    for (const auto& item : value) for_each_distributed(item, check);
  } else if constexpr (HasDistributed<T>::value && nest::IsMap<T>::value) {
    for (const auto& [key, item] : value) for_each_distributed(item, check);
  } else if constexpr (HasDistributed<T>::value) {
    std::apply([&](const auto&... items) { (for_each_distributed(items, check), ...); }, value);
  }
}

// PerReplica of what `get` finds in each replica's record.
template <typename T, typename Get>
PerReplica<T> collect(std::span<void* const> records, Get get) {
  std::vector<T> values;
  values.reserve(records.size());
  for (void* record : records) values.push_back(get(record));
  return PerReplica<T>(std::move(values));
}

}  // namespace internal
}  // namespace lockstep

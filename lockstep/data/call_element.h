#pragma once

#include <concepts>
#include <map>
#include <string>
#include <tuple>
#include <type_traits>
#include <utility>
#include <vector>

#include "lockstep/data/element.h"

// Calls of user functions with an element: whole, or unpacked into its tensors.

namespace lockstep::data {

namespace internal {

constexpr std::size_t kMostTensors = 8;

template <typename F, std::size_t... I>
constexpr bool takes_tensors(std::index_sequence<I...>) {
  return std::is_invocable_v<F&, std::enable_if_t<(I < kMostTensors), at::Tensor>...>;
}

// The smallest number of tensors, N or more, that F takes; 0: none.
template <typename F, std::size_t N = 1>
constexpr std::size_t first_tensor_count() {
  if constexpr (N > kMostTensors) return 0;
  else if constexpr (takes_tensors<F>(std::make_index_sequence<N>())) return N;
  else return first_tensor_count<F, N + 1>();
}

template <typename F, std::size_t... I>
decltype(auto) call_with_tensors(F& fn, const Element& element, std::index_sequence<I...>) {
  return fn(at::Tensor(element[I])...);
}

template <typename F, std::size_t N>
struct TensorsResult {
  using type = decltype(call_with_tensors(std::declval<F&>(), std::declval<const Element&>(), std::make_index_sequence<N>()));
};
template <typename F>
struct TensorsResult<F, 0> {
  static_assert(std::is_invocable_v<F&, const Element&>,
                "the function must take a `const data::Element&`, or one at::Tensor per component (at most 8)");
  using type = std::invoke_result_t<F&, const Element&>;
};

[[noreturn]] void throw_component_count(std::size_t components, std::size_t taken);

template <typename F, std::size_t N>
decltype(auto) call_unpacked(F& fn, const Element& element) {
  if (element.size() == N) return call_with_tensors(fn, element, std::make_index_sequence<N>());
  // Only a function with default arguments or a parameter pack takes several counts.
  if constexpr (constexpr auto more = first_tensor_count<F, N + 1>(); more > 0) {
    return call_unpacked<F, more>(fn, element);
  } else {
    throw_component_count(element.size(), first_tensor_count<F>());
  }
}

}  // namespace internal

// True when call_with_element hands the tensors over one by one, false when it hands over the element.
template <typename F>
inline constexpr bool takes_tensors_v = internal::first_tensor_count<std::remove_reference_t<F>>() > 0;

// What fn gives for an element.
template <typename F>
using element_result_t = typename internal::TensorsResult<std::remove_reference_t<F>,
                                                          internal::first_tensor_count<std::remove_reference_t<F>>()>::type;

// fn(tensor, tensor, ...) when fn can be called with tensors, one per component, up to eight; else fn(element).
// A generic callable (`[](auto x)`) therefore gets tensors. Throws kInvalidArgument, saying both counts, when the
// element has another number of components than fn takes.
template <typename F>
decltype(auto) call_with_element(F&& fn, const Element& element) {
  using Fn = std::remove_reference_t<F>;
  if constexpr (takes_tensors_v<Fn>) return internal::call_unpacked<Fn, internal::first_tensor_count<Fn>()>(fn, element);
  else return static_cast<element_result_t<Fn>>(fn(element));
}

// What a function given to map() may return, as an element: an element, a tensor, a vector, pair or tuple of tensors,
// or a map from names to tensors.
inline Element to_element(Element element) { return element; }
inline Element to_element(at::Tensor tensor) { return Element(std::move(tensor)); }
inline Element to_element(std::vector<at::Tensor> tensors) { return Element(std::move(tensors)); }
template <std::convertible_to<at::Tensor>... T>
Element to_element(std::tuple<T...> tensors) {
  return std::apply([](auto&... items) { return Element({at::Tensor(items)...}); }, tensors);
}
template <std::convertible_to<at::Tensor> A, std::convertible_to<at::Tensor> B>
Element to_element(std::pair<A, B> tensors) {
  return Element({at::Tensor(tensors.first), at::Tensor(tensors.second)});
}
inline Element to_element(const std::map<std::string, at::Tensor>& tensors) {
  std::vector<Component> components;
  for (const auto& [name, tensor] : tensors) components.push_back({name, tensor});
  return Element(std::move(components));
}

}  // namespace lockstep::data

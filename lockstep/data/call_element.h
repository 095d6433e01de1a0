#pragma once

#include <concepts>
#include <map>
#include <string>
#include <string_view>
#include <tuple>
#include <type_traits>
#include <utility>
#include <vector>

#include "lockstep/data/element.h"

// Calls of user functions with an element: whole, or unpacked into its components.

namespace lockstep::data {

namespace internal {

constexpr std::size_t kMostParameters = 8;

// One component, as a function's parameter wants it. Throws kInvalidArgument when it is of the other kind, or has several
// strings where one is wanted.
class AsParameter {
 public:
  AsParameter(const Element& element, std::size_t position) : element_(element), position_(position) {}

  operator const at::Tensor&() const { return element_[position_]; }
  operator const std::string&() const { return element_.text(position_); }
  operator std::string_view() const { return element_.text(position_); }
  operator const Bytes&() const { return component().bytes(); }

 private:
  const Component& component() const { return element_.components()[position_]; }

  const Element& element_;
  const std::size_t position_;
};

// How a function is called.
enum class CallStyle { kTensors, kElement, kMixed, kNone };

template <typename F, typename Parameter, std::size_t... I>
constexpr bool takes(std::index_sequence<I...>) {
  return std::is_invocable_v<F&, std::enable_if_t<(I < kMostParameters), Parameter>...>;
}

// The smallest number of such parameters, N or more, that F takes; 0: none.
template <typename F, typename Parameter, std::size_t N = 1>
constexpr std::size_t first_count() {
  if constexpr (N > kMostParameters) return 0;
  else if constexpr (takes<F, Parameter>(std::make_index_sequence<N>())) return N;
  else return first_count<F, Parameter, N + 1>();
}

template <typename F>
constexpr CallStyle style_of() {
  if constexpr (first_count<F, at::Tensor>() > 0) return CallStyle::kTensors;
  else if constexpr (std::is_invocable_v<F&, const Element&>) return CallStyle::kElement;
  else if constexpr (first_count<F, AsParameter>() > 0) return CallStyle::kMixed;
  else return CallStyle::kNone;
}

template <typename F, std::size_t... I>
decltype(auto) call_with_tensors(F& fn, const Element& element, std::index_sequence<I...>) {
  return fn(at::Tensor(element[I])...);
}

template <typename F, std::size_t... I>
decltype(auto) call_with_components(F& fn, const Element& element, std::index_sequence<I...>) {
  return fn(AsParameter(element, I)...);
}

template <typename F, CallStyle kStyle = style_of<F>()>
struct Result {
  static_assert(kStyle != CallStyle::kNone,
                "the function must take a `const data::Element&`, or one at::Tensor, std::string or data::Bytes per component "
                "(at most 8)");
};
template <typename F>
struct Result<F, CallStyle::kElement> {
  using type = std::invoke_result_t<F&, const Element&>;
};
template <typename F>
struct Result<F, CallStyle::kTensors> {
  using type = decltype(call_with_tensors(std::declval<F&>(), std::declval<const Element&>(),
                                          std::make_index_sequence<first_count<F, at::Tensor>()>()));
};
template <typename F>
struct Result<F, CallStyle::kMixed> {
  using type = decltype(call_with_components(std::declval<F&>(), std::declval<const Element&>(),
                                             std::make_index_sequence<first_count<F, AsParameter>()>()));
};

[[noreturn]] void throw_component_count(std::size_t components, std::size_t taken);

template <typename F, std::size_t N>
decltype(auto) call_unpacked(F& fn, const Element& element) {
  if (element.size() == N) return call_with_tensors(fn, element, std::make_index_sequence<N>());
  // Only a function with default arguments or a parameter pack takes several counts.
  if constexpr (constexpr auto more = first_count<F, at::Tensor, N + 1>(); more > 0) {
    return call_unpacked<F, more>(fn, element);
  } else {
    throw_component_count(element.size(), first_count<F, at::Tensor>());
  }
}

}  // namespace internal

// True when call_with_element hands over tensors, one by one.
template <typename F>
inline constexpr bool takes_tensors_v = internal::first_count<std::remove_reference_t<F>, at::Tensor>() > 0;

// What fn gives for an element.
template <typename F>
using element_result_t = typename internal::Result<std::remove_reference_t<F>>::type;

// Calls fn with an element's components, up to eight, or with the element: fn(tensor, tensor, ...) when it can be called with
// tensors alone, which a generic callable (`[](auto x)`) can; else fn(element); else with what it takes of tensors, strings and
// Bytes. Throws kInvalidArgument, saying both counts, when the element has another number of components than fn takes.
template <typename F>
decltype(auto) call_with_element(F&& fn, const Element& element) {
  using Fn = std::remove_reference_t<F>;
  constexpr auto style = internal::style_of<Fn>();
  if constexpr (style == internal::CallStyle::kTensors) {
    return internal::call_unpacked<Fn, internal::first_count<Fn, at::Tensor>()>(fn, element);
  } else if constexpr (style == internal::CallStyle::kMixed) {
    constexpr auto count = internal::first_count<Fn, internal::AsParameter>();
    if (element.size() != count) internal::throw_component_count(element.size(), count);
    return internal::call_with_components(fn, element, std::make_index_sequence<count>());
  } else {
    return static_cast<element_result_t<Fn>>(fn(element));
  }
}

// What a function given to map() may return, as an element: an element, a tensor, a string, a vector, pair or tuple of tensors,
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
// A byte string.
inline Element to_element(std::string text) { return Element(std::vector<Component>{{"", Bytes{{std::move(text)}, {}}}}); }
inline Element to_element(const std::map<std::string, at::Tensor>& tensors) {
  std::vector<Component> components;
  for (const auto& [name, tensor] : tensors) components.push_back({name, tensor});
  return Element(std::move(components));
}

}  // namespace lockstep::data

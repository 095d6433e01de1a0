#pragma once

#include <array>
#include <cstddef>
#include <functional>
#include <map>
#include <string>
#include <tuple>
#include <type_traits>
#include <utility>
#include <vector>

#include "lockstep/variable/mirrored.h"

// How Model calls any module: its forward() with one tensor for each parameter, and what comes back as a list of tensors.

namespace lockstep {

using Tensors = std::vector<at::Tensor>;

namespace internal {

struct Forward {
  std::size_t inputs = 1;  // 0: any number
  std::function<Tensors(const Tensors&)> call = nullptr;
};

template <typename... Parameters>
struct ParameterList {
  static constexpr std::size_t kCount = sizeof...(Parameters);
  static constexpr bool kIsList = kCount == 1 && (std::is_same_v<std::remove_cvref_t<Parameters>, Tensors> && ...);
};
template <typename F>
struct Signature;
template <typename R, typename C, typename... A>
struct Signature<R (C::*)(A...)> : ParameterList<A...> {};
template <typename R, typename C, typename... A>
struct Signature<R (C::*)(A...) const> : ParameterList<A...> {};

inline Tensors to_tensors(at::Tensor output) { return {std::move(output)}; }
inline Tensors to_tensors(Tensors outputs) { return outputs; }
template <std::size_t n>
Tensors to_tensors(const std::array<at::Tensor, n>& outputs) {
  return {outputs.begin(), outputs.end()};
}
template <typename... T>
Tensors to_tensors(const std::tuple<T...>& outputs) {
  return std::apply([](const auto&... output) { return Tensors{output...}; }, outputs);
}
template <typename A, typename B>
Tensors to_tensors(const std::pair<A, B>& outputs) {
  return {outputs.first, outputs.second};
}
inline Tensors to_tensors(const std::map<std::string, at::Tensor>& outputs) {
  Tensors tensors;
  for (const auto& [name, tensor] : outputs) tensors.push_back(tensor);
  return tensors;
}

template <typename F, std::size_t... i>
Tensors call_unpacked(F&& function, const Tensors& inputs, std::index_sequence<i...>) {
  return to_tensors(function(inputs[i]...));
}

// `function` takes the module and its inputs.
template <std::size_t count, bool is_list, typename M, typename F>
Forward make_forward(const MirroredModule<M>& module, F function) {
  if constexpr (is_list) {
    return {0, [module, function](const Tensors& inputs) { return to_tensors(function(*module, inputs)); }};
  } else {
    return {count, [module, function](const Tensors& inputs) {
              return call_unpacked([&](const auto&... input) { return function(*module, input...); }, inputs,
                                   std::make_index_sequence<count>());
            }};
  }
}

// Of a module's own forward(). One that is a template or has overloads is taken to have one input.
template <typename M>
Forward forward_of(const MirroredModule<M>& module) {
  const auto call = [](M& one, const auto&... inputs) { return one.forward(inputs...); };
  if constexpr (requires { &M::forward; }) {
    using Of = Signature<decltype(&M::forward)>;
    return make_forward<Of::kCount, Of::kIsList>(module, call);
  } else {
    return make_forward<1, false>(module, call);
  }
}

// Of a function that takes the module first.
template <typename M, typename F>
Forward forward_with(const MirroredModule<M>& module, F function) {
  using Of = Signature<decltype(&F::operator())>;
  if constexpr (Of::kCount == 2 && std::is_invocable_v<F&, M&, const Tensors&> &&
                !std::is_invocable_v<F&, M&, const at::Tensor&>)
    return make_forward<0, true>(module, std::move(function));
  else return make_forward<Of::kCount - 1, false>(module, std::move(function));
}

}  // namespace internal
}  // namespace lockstep

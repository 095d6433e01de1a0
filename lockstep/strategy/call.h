#pragma once

#include <type_traits>
#include <utility>

#include "lockstep/data/call_element.h"
#include "lockstep/data/element.h"
#include "lockstep/fwd.h"
#include "lockstep/replica/replica_context.h"

// How run() calls a user's function: with or without the ReplicaContext, with a dataset element whole or unpacked.

namespace lockstep::internal {

// fn with the context put before its other arguments.
template <typename F>
struct WithContext {
  F& fn;
  ReplicaContext& context;

  template <typename... Args>
  requires std::is_invocable_v<F&, ReplicaContext&, Args...>
  decltype(auto) operator()(Args&&... args) const { return fn(context, std::forward<Args>(args)...); }
};

// The single argument is a dataset element.
template <typename... Args>
inline constexpr bool is_one_element_v = false;
template <typename Arg>
inline constexpr bool is_one_element_v<Arg> = std::is_same_v<std::remove_cvref_t<Arg>, data::Element>;

// Whether fn gets that element's tensors. Asked only about an element: to ask is to compile a generic lambda with tensors.
template <bool is_one_element, typename F>
inline constexpr bool takes_tensors_of_element_v = false;
template <typename F>
inline constexpr bool takes_tensors_of_element_v<true, F> = data::takes_tensors_v<F>;

template <typename F, typename... Args>
decltype(auto) call_in_replica(F& fn, ReplicaContext& context, Args&&... args) {
  if constexpr (takes_tensors_of_element_v<is_one_element_v<Args...>, WithContext<F>>) {
    return data::call_with_element(WithContext<F>{fn, context}, args...);
  } else if constexpr (takes_tensors_of_element_v<is_one_element_v<Args...>, F>) {
    return data::call_with_element(fn, args...);
  } else if constexpr (std::is_invocable_v<F&, ReplicaContext&, Args...>) {
    return fn(context, std::forward<Args>(args)...);
  } else {
    static_assert(std::is_invocable_v<F&, Args...>,
                  "run(fn, args...): fn cannot be called with these arguments (PerReplica arguments arrive as their "
                  "component; a ReplicaContext& may come first)");
    return fn(std::forward<Args>(args)...);
  }
}

}  // namespace lockstep::internal

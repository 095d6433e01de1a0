#pragma once

#include <type_traits>
#include <utility>

#include "lockstep/ps/per_worker_values.h"
#include "lockstep/ps/remote_function.h"
#include "lockstep/ps/remote_value.h"

// A function and its arguments, as they are sent.

namespace lockstep::ps {

template <typename F>
using InvocationOf = Invocation<typename Named<std::decay_t<F>>::Function>;

template <typename P, typename A>
void put_argument(Encoder& encoder, A&& argument) {
  using T = std::remove_cvref_t<P>;
  using Given = std::remove_cvref_t<A>;
  static_assert(!IsRemoteValue<Given>::value, "a RemoteValue cannot be an argument of a closure: get() it, and give its value");
  if constexpr (IsPerWorker<Given>::value && !std::is_same_v<T, Given>) {
    static_assert(std::is_same_v<typename Given::value_type, T>, "the closure takes another type than this per-worker value's");
    encoder.put(ArgumentKind::kPerWorker);
    encoder.put(argument);
  } else {
    static_assert(!Argument<P>::kIsChanged,
                  "only a per-worker value can be taken as a reference that may be changed: a value is sent, not shared");
    static_assert(
        is_sendable<T>(),
        "an argument of this type cannot be sent: tensors, numbers, strings and structures of them can, and what has a "
        "lockstep::ps::ValueCodec (take std::string in place of const char* or std::string_view)");
    const T value = std::forward<A>(argument);  // a copy, so that a tensor that was not moved here is held twice
    encoder.put(ArgumentKind::kValue);
    encoder.put(value);
  }
}

template <typename F, typename... Args>
Call make_call(const F& function, Args&&... args) {
  const auto put_all = [&]<typename... P>(Encoder& encoder, TypeList<P...>) {
    static_assert(sizeof...(P) == sizeof...(Args), "the function takes another number of arguments");
    if constexpr (sizeof...(P) == sizeof...(Args)) (put_argument<P>(encoder, std::forward<Args>(args)), ...);
  };
  Encoder encoder;
  put_all(encoder, typename InvocationOf<F>::Given());
  Call call;
  call.work.function = Named<std::decay_t<F>>::name(function);
  call.work.payload_bytes = encoder.payload_bytes();
  call.work.arguments = encoder.take_fields();
  call.payload = encoder.take_payload();
  call.kept = encoder.take_kept();
  return call;
}

}  // namespace lockstep::ps

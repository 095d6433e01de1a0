#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <tuple>
#include <type_traits>
#include <utility>
#include <variant>

#include "lockstep/base/error.h"
#include "lockstep/ps/value_codec.h"
#include "lockstep/ps/worker_context.h"
#include "lockstep/variable/no_variables.h"

// Calls a function with arguments that came as bytes.

namespace lockstep::data {
class Dataset;
}  // namespace lockstep::data

namespace lockstep::ps {

// A callable that is what it is by its type alone, such as a lambda without captures.
template <typename F>
concept WithoutState = std::is_class_v<F> && std::is_empty_v<F> && std::is_default_constructible_v<F>;

template <typename F>
struct Signature : Signature<decltype(&F::operator())> {};  // not of a generic lambda: give its parameters their types
template <typename R, typename... P>
struct Signature<R (*)(P...)> {
  using Result = R;
  using Parameters = TypeList<P...>;
};
template <typename R, typename... P>
struct Signature<R (*)(P...) noexcept> : Signature<R (*)(P...)> {};
template <typename C, typename R, typename... P>
struct Signature<R (C::*)(P...)> : Signature<R (*)(P...)> {};
template <typename C, typename R, typename... P>
struct Signature<R (C::*)(P...) const> : Signature<R (*)(P...)> {};
template <typename C, typename R, typename... P>
struct Signature<R (C::*)(P...) noexcept> : Signature<R (*)(P...)> {};
template <typename C, typename R, typename... P>
struct Signature<R (C::*)(P...) const noexcept> : Signature<R (*)(P...)> {};

// The parameters that the caller gives: all but a first one that the worker gives.
template <typename P>
constexpr bool kIsGivenByWorker =
    std::is_same_v<P, WorkerContext&> || std::is_same_v<P, const InputContext&> || std::is_same_v<P, InputContext>;
template <typename Parameters>
struct Own {
  using Given = Parameters;
  static constexpr bool kTakesWorker = false;
};
template <typename First, typename... P>
requires kIsGivenByWorker<First>
struct Own<TypeList<First, P...>> {
  using Given = TypeList<P...>;
  using Worker = First;
  static constexpr bool kTakesWorker = true;
};

// How one argument is sent: as its value, or as the number of a per-worker value.
enum class ArgumentKind : std::uint8_t { kValue, kPerWorker };

// One argument that has come, for a parameter P.
template <typename P>
class Argument {
 public:
  using T = std::remove_cvref_t<P>;
  static constexpr bool kIsChanged = std::is_lvalue_reference_v<P> && !std::is_const_v<std::remove_reference_t<P>>;
  // A function that changes its argument can only be given what stays on the worker.
  static constexpr bool kTakesValue = is_sendable<T>() && !kIsChanged;

  explicit Argument(Decoder& decoder) {
    const auto kind = decoder.get<ArgumentKind>();
    if (kind == ArgumentKind::kPerWorker) {
      object_ = decoder.worker().resource<T>(decoder.get<std::uint64_t>());
      if constexpr (requires { object_->begin_closure(); }) object_->begin_closure();
    } else if constexpr (kTakesValue) {
      value_.emplace(decoder.get<T>());
    } else {
      Decoder::refuse("a value where a per-worker one is needed");
    }
  }

  P pass() {
    if constexpr (kIsChanged) {
      return *object_;
    } else if constexpr (std::is_lvalue_reference_v<P>) {
      if constexpr (kTakesValue)
        if (value_) return *value_;
      return *object_;
    } else {
      if constexpr (kTakesValue)
        if (value_) return std::move(*value_);
      return copy();
    }
  }

 private:
  P copy() {
    if constexpr (std::is_copy_constructible_v<T> && !std::is_reference_v<P>) return *object_;
    else Decoder::refuse("a per-worker value that cannot be copied: take it by reference");
  }

  std::conditional_t<kTakesValue, std::optional<T>, std::monostate> value_;
  std::shared_ptr<T> object_;
};

// What a per-worker object of a function's result is: a pointer's is what it points to.
template <typename R>
struct Made {
  using type = R;
  template <typename Call>
  static std::shared_ptr<R> make(const Call& call) {
    return std::shared_ptr<R>(new R(call()));  // NOLINT: in place, also what cannot be moved
  }
};
template <typename T>
struct Made<std::shared_ptr<T>> {
  using type = T;
  template <typename Call>
  static std::shared_ptr<T> make(const Call& call) {
    return call();
  }
};
template <typename T>
struct Made<std::unique_ptr<T>> : Made<std::shared_ptr<T>> {};

template <typename F>
struct Invocation {
  using Result = typename Signature<F>::Result;
  using Value = std::remove_cvref_t<Result>;
  using Answer = std::conditional_t<std::is_reference_v<Result>, Value, Result>;  // may be of an argument, which ends first
  using Parameters = Own<typename Signature<F>::Parameters>;
  using Given = typename Parameters::Given;
  static constexpr bool kCanReturn = std::is_void_v<Result> || is_sendable<Value>();
  static constexpr bool kCanCreate = !std::is_void_v<Result> && std::is_object_v<Result>;

  static void call(F function, Decoder& decoder, Encoder& encoder) {
    if constexpr (std::is_void_v<Result>) {
      with_arguments(function, decoder, Given());
    } else {
      const Value value = with_arguments(function, decoder, Given());
      encoder.put(value);
    }
  }

  static Resource create(F function, Decoder& decoder) {
    using Object = typename Made<Result>::type;
    std::optional<internal::NoVariables> no_variables;
    if constexpr (std::is_same_v<Object, data::Dataset>) no_variables.emplace("a function that makes a dataset");
    auto object = Made<Result>::make([&]() -> Result { return with_arguments(function, decoder, Given()); });
    if (!object) throw Error(ErrorCode::kInvalidArgument, "a function that makes a per-worker value returned a null pointer");
    return {std::move(object), typeid(Object)};
  }

 private:
  template <typename... P>
  static Answer with_arguments(F& function, Decoder& decoder, TypeList<P...>) {
    std::tuple<Argument<P>...> arguments{Argument<P>(decoder)...};  // braces: from left to right
    decoder.require_end();
    return std::apply(
        [&](auto&... argument) -> Answer {
          if constexpr (!Parameters::kTakesWorker) return function(argument.pass()...);
          else if constexpr (std::is_same_v<typename Parameters::Worker, WorkerContext&>)
            return function(decoder.worker(), argument.pass()...);
          else return function(decoder.worker().input_context(), argument.pass()...);
        },
        arguments);
  }
};

}  // namespace lockstep::ps

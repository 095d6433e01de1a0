#pragma once

#include <functional>
#include <map>
#include <mutex>
#include <string>
#include <typeinfo>
#include <utility>
#include <vector>

#include "lockstep/ps/invoke.h"

// Functions that a coordinator runs on workers. A C++ function cannot be sent: both run the same program, and know the
// function by a name. A lambda without captures gets one from its type when it is given to schedule():
//
//   coordinator.schedule([](at::Tensor x) { return x * 2; }, x);
//
// A function, or a name of one's own, is registered where the program starts, on all tasks alike:
//
//   at::Tensor twice(at::Tensor x);
//   const auto kTwice = lockstep::remote_function("twice", twice);  // at namespace scope
//   coordinator.schedule(kTwice, x);
//
// A function may take a `WorkerContext&` or a `const InputContext&` first: it is given the worker's.

namespace lockstep {

namespace ps {

// What there is of one function.
struct RegisteredFunction {
  std::string name;
  const std::type_info* type = nullptr;  // with `pointer`: which function it is
  void (*pointer)() = nullptr;           // null: a callable without state
  // Null when its result cannot be sent; or when it has none.
  std::function<void(Decoder& arguments, Encoder& result)> call = nullptr;
  std::function<Resource(Decoder& arguments)> create = nullptr;

  bool is(const RegisteredFunction& other) const { return *type == *other.type && pointer == other.pointer; }
};

// All functions of this program. Filled before main() and by plugins; thread-safe.
class FunctionRegistry {
 public:
  static FunctionRegistry& global();

  // The name under which it is found. The same function may come again. Another one of the same name is remembered as a
  // mistake, because nobody could catch an error before main().
  std::string add(RegisteredFunction function);
  // For functions that are named by their type: types of different files may share a name, and are then numbered, which is the
  // same in all processes of one program.
  std::string add_by_type(RegisteredFunction function);

  // Throws kNotFound with the name.
  const RegisteredFunction& find(const std::string& name) const;
  // The name that a function was registered by. Throws kInvalidArgument when it was not.
  std::string name_of(void (*pointer)()) const;
  // Throws kInvalidArgument when two functions were registered under one name.
  void require_sound() const;

 private:
  // Guarded by mu_. Entries stay where they are.
  mutable std::mutex mu_;
  std::map<std::string, RegisteredFunction> functions_;
  std::string mistake_;
};

// Of a type or a function, as it stands in the source.
std::string readable_name(const std::string& name);

template <typename F>
RegisteredFunction describe_function(F function, std::string name) {
  using Calls = Invocation<F>;
  RegisteredFunction described{std::move(name), &typeid(F)};
  if constexpr (std::is_pointer_v<F>) described.pointer = reinterpret_cast<void (*)()>(function);  // NOLINT: an identity
  if constexpr (Calls::kCanReturn) described.call = [function](Decoder& d, Encoder& e) { Calls::call(function, d, e); };
  if constexpr (Calls::kCanCreate) described.create = [function](Decoder& d) { return Calls::create(function, d); };
  return described;
}

// A callable without captures registers itself before main() in every program that mentions its kName.
template <typename F>
struct RegisteredByType {
  static inline const std::string kName = FunctionRegistry::global().add_by_type(describe_function(F{}, typeid(F).name()));
};

}  // namespace ps

// A function with a name. Cheap to copy.
template <typename F>
class RemoteFunction {
 public:
  RemoteFunction(std::string name, F function)
      : name_(ps::FunctionRegistry::global().add(ps::describe_function(function, std::move(name)))) {}

  const std::string& name() const noexcept { return name_; }

 private:
  std::string name_;
};

// Registers `function`, a function or a callable without captures, under `name`. Two functions of one name are an error when a
// coordinator or a worker starts.
template <typename F>
RemoteFunction<std::decay_t<F>> remote_function(std::string name, F&& function) {
  using Plain = std::decay_t<F>;
  static_assert(std::is_pointer_v<Plain> || ps::WithoutState<Plain>,
                "a function that captures cannot run in another process: give what it captures as arguments");
  return RemoteFunction<Plain>(std::move(name), function);
}

namespace ps {

// What schedule() takes: a registered function, a callable without captures, or a function that has been registered.
template <typename F>
struct Named {
  static_assert(WithoutState<F>,
                "a lambda that captures cannot run in another process: give what it captures as arguments of the closure");
  using Function = F;
  static const std::string& name(const F&) { return RegisteredByType<F>::kName; }
};
template <typename F>
struct Named<RemoteFunction<F>> {
  using Function = F;
  static const std::string& name(const RemoteFunction<F>& function) { return function.name(); }
};
template <typename F>
requires std::is_function_v<F>
struct Named<F*> {
  using Function = F*;
  static std::string name(F* function) {
    return FunctionRegistry::global().name_of(reinterpret_cast<void (*)()>(function));  // NOLINT: an identity
  }
};

}  // namespace ps
}  // namespace lockstep

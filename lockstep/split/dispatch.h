#pragma once

#include <ATen/core/dispatch/Dispatcher.h>
#include <ATen/core/stack.h>

#include <optional>
#include <vector>

#include "lockstep/split/split_tensor.h"

namespace lockstep::split {

// LibTorch asks us for the operations of tensors that have this key.
inline constexpr auto kSplitKey = c10::DispatchKey::TESTING_ONLY_GenericWrapper;

// Tells LibTorch what we do with them, once.
void register_operations();

// One operation that a split tensor takes part in. See Note [split tensors].
class Call {
 public:
  Call(const c10::OperatorHandle& op, torch::jit::Stack* stack);

  std::string name() const { return op_.schema().name(); }
  const c10::IValue& arg(std::size_t index) const { return args_[index]; }
  // Undefined: there is none.
  at::Tensor tensor(std::size_t index) const;
  std::vector<std::int64_t> ints(std::size_t index) const;
  std::int64_t integer(std::size_t index) const { return args_[index].toInt(); }
  bool flag(std::size_t index) const { return args_[index].toBool(); }

  // Arguments that are tensors, alone.
  const std::vector<std::size_t>& tensors() const noexcept { return tensors_; }
  // Null: it is not split.
  const SplitValue* value(std::size_t index) const { return find_value(tensor(index)); }
  bool is_written(std::size_t index) const;
  // The position of the argument of that name.
  std::optional<std::size_t> find(const char* argument) const;
  bool gives_one_tensor() const;
  // Whether all split arguments are of one replica.
  bool has_one_home() const noexcept { return has_one_home_; }
  // The devices of the split argument that comes first; null: there is none.
  const Home& home() const noexcept { return home_; }

  // The same operation with other arguments.
  std::vector<c10::IValue> call(std::vector<c10::IValue> args) const;
  at::Tensor call_one(std::vector<c10::IValue> args) const { return call(std::move(args)).at(0).toTensor(); }
  const std::vector<c10::IValue>& args() const noexcept { return args_; }

  // What it gives; then it is done.
  void give(std::vector<c10::IValue> results) { results_ = std::move(results); }
  void give(const at::Tensor& result) { results_ = {result}; }
  bool is_done() const noexcept { return results_.has_value(); }
  void put_results(torch::jit::Stack* stack);

  // On the first device, with whole tensors.
  void do_whole();
  // After it is done.
  void mark_views();

 private:
  // `arg` with the tensors in it replaced.
  template <typename F>
  c10::IValue replaced(const c10::IValue& arg, const F& fn) const;
  // After an operation that has written to `wholes`: the split arguments get it, and are what the results name.
  void write_back(const std::vector<c10::IValue>& wholes);
  void require_writable(const at::Tensor& tensor) const;

  const c10::OperatorHandle& op_;
  std::vector<c10::IValue> args_;
  std::vector<std::size_t> tensors_;
  Home home_ = nullptr;
  bool is_cut_ = false;  // an argument has several parts
  bool has_one_home_ = true;
  bool is_of_copy_ = false;  // an argument is a copy of a view
  bool is_whole_ = false;    // it was done whole
  std::optional<std::vector<c10::IValue>> results_;
};

}  // namespace lockstep::split

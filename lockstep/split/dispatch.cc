#include "lockstep/split/dispatch.h"

#include <ATen/ATen.h>
#include <torch/library.h>

#include <algorithm>
#include <array>
#include <mutex>

#include "lockstep/base/error.h"
#include "lockstep/base/log.h"
#include "lockstep/base/str.h"
#include "lockstep/split/gradients.h"
#include "lockstep/split/rules.h"

namespace lockstep::split {
namespace {

bool has_lists_of_tensors(const c10::IValue& value) {
  return value.isTensorList() || (value.isList() && !value.isIntList() && !value.isDoubleList() && !value.isBoolList());
}

void run(const c10::OperatorHandle& op, torch::jit::Stack* stack) {
  Call call(op, stack);
  if (const auto rule = find_rule(op.schema().name()); rule != nullptr && call.has_one_home()) rule(call);
  if (!call.is_done()) call.do_whole();
  call.mark_views();
  call.put_results(stack);
}

}  // namespace

void register_operations() {
  static std::once_flag once;
  std::call_once(once, [] {
    static auto* const library = new torch::Library(torch::Library::IMPL, "_", kSplitKey, __FILE__, __LINE__);
    library->fallback(torch::CppFunction::makeFromBoxedFunction<&run>());
  });
}

Call::Call(const c10::OperatorHandle& op, torch::jit::Stack* stack) : op_(op) {
  const auto& arguments = op.schema().arguments();
  const auto count = arguments.size();
  args_.assign(std::make_move_iterator(stack->end() - static_cast<std::ptrdiff_t>(count)),
               std::make_move_iterator(stack->end()));
  stack->resize(stack->size() - count);
  const auto note = [&](const at::Tensor& tensor) {
    const auto* const value = find_value(tensor);
    if (value == nullptr) return;
    require_own_gradients(tensor, name());
    if (home_ == nullptr) home_ = value->home;
    has_one_home_ = has_one_home_ && home_ == value->home;
    is_cut_ = is_cut_ || value->parts.size() > 1;
    is_of_copy_ = is_of_copy_ || value->is_copy_of_view;
  };
  for (std::size_t index = 0; index < args_.size(); ++index) {
    const auto& arg = args_[index];
    if (arg.isTensor() && arg.toTensor().defined()) {
      tensors_.push_back(index);
      note(arg.toTensor());
      if (is_written(index)) require_writable(arg.toTensor());
    } else if (has_lists_of_tensors(arg)) {
      for (const c10::IValue& one : arg.toListRef()) {
        if (!one.isTensor()) continue;
        note(one.toTensor());
        if (find_value(one.toTensor()) != nullptr && is_written(index))
          throw Error(ErrorCode::kUnimplemented, str(name(), " writes to a list with split tensors; write to each alone"));
      }
    }
  }
}

void Call::require_writable(const at::Tensor& tensor) const {
  if (const auto* const value = find_value(tensor); value != nullptr && value->is_copy_of_view)
    throw Error(ErrorCode::kUnimplemented,
                str(name(), " writes to a view of a split tensor, which would not reach it; write to the tensor itself"));
}

at::Tensor Call::tensor(std::size_t index) const { return args_[index].isTensor() ? args_[index].toTensor() : at::Tensor(); }

std::vector<std::int64_t> Call::ints(std::size_t index) const {
  if (args_[index].isNone()) return {};
  if (args_[index].isInt()) return {args_[index].toInt()};
  return args_[index].toIntVector();
}

std::optional<std::size_t> Call::find(const char* argument) const {
  const auto index = op_.schema().argumentIndexWithName(argument);
  return index ? std::optional<std::size_t>(static_cast<std::size_t>(*index)) : std::nullopt;
}

bool Call::gives_one_tensor() const {
  const auto& returns = op_.schema().returns();
  return returns.size() == 1 && returns[0].type()->kind() == c10::TypeKind::TensorType;
}

// LibTorch does not say of all arguments that they are written to.
bool Call::is_written(std::size_t index) const {
  const auto& argument = op_.schema().arguments()[index];
  if (argument.name() == "running_mean" || argument.name() == "running_var") return true;
  return argument.alias_info() != nullptr && argument.alias_info()->isWrite();
}

std::vector<c10::IValue> Call::call(std::vector<c10::IValue> args) const {
  torch::jit::Stack stack(std::make_move_iterator(args.begin()), std::make_move_iterator(args.end()));
  op_.callBoxed(&stack);
  return {std::make_move_iterator(stack.begin()), std::make_move_iterator(stack.end())};
}

void Call::put_results(torch::jit::Stack* stack) {
  for (auto& result : *results_) stack->push_back(std::move(result));
}

template <typename F>
c10::IValue Call::replaced(const c10::IValue& arg, const F& fn) const {
  if (arg.isTensor() && arg.toTensor().defined()) return fn(arg.toTensor());
  if (!has_lists_of_tensors(arg)) return arg;
  auto list = arg.toList().copy();
  for (std::size_t k = 0; k < list.size(); ++k) {
    const c10::IValue one = list.get(k);
    if (one.isTensor() && one.toTensor().defined()) list.set(k, fn(one.toTensor()));
  }
  return list;
}

void Call::write_back(const std::vector<c10::IValue>& wholes) {
  for (const auto index : tensors_) {
    auto* const value = find_value(tensor(index));
    if (value == nullptr || !is_written(index)) continue;
    const auto now = wholes[index].toTensor();
    if (now.sizes() != tensor(index).sizes() || now.scalar_type() != tensor(index).scalar_type())
      throw Error(ErrorCode::kUnimplemented,
                  str(name(), " changes the shape or the dtype of a split tensor; make it whole first"));
    // Into the parts: others may share them (data(), a variable's component).
    for (std::size_t k = 0; k < value->parts.size(); ++k)
      value->parts[k].copy_(fetch(now, value->is_replicated ? whole_region(now.sizes().vec()) : value->tiling.tile(k),
                                  *value->home, value->devices[k]));
    connect(tensor(index), *value);
    for (auto& result : *results_)
      if (result.isTensor() && result.toTensor().is_same(now)) result = args_[index];
  }
}

// What LibTorch gives as views of whole tensors are views of copies: writes to them have to be refused.
void Call::mark_views() {
  constexpr std::array kMayCopy = {"aten::to", "aten::reshape", "aten::flatten", "aten::contiguous"};
  if (home_ == nullptr || !(is_whole_ || is_of_copy_) || std::ranges::find(kMayCopy, name()) != kMayCopy.end()) return;
  const auto mark = [&](const at::Tensor& result) {
    return find_value(result) == nullptr ? make_copy_of_view(result, home_) : result;
  };
  const auto& returns = op_.schema().returns();
  for (std::size_t k = 0; k < returns.size() && k < results_->size(); ++k) {
    if (returns[k].alias_info() == nullptr || returns[k].alias_info()->isWrite()) continue;
    (*results_)[k] = replaced((*results_)[k], mark);
  }
}

void Call::do_whole() {
  if (is_cut_)
    log_once(LogLevel::kInfo, str(name(), " of a split tensor is computed whole, on the first logical device of its replica"));
  std::vector<c10::IValue> wholes;
  for (std::size_t index = 0; index < args_.size(); ++index) {
    const bool writes = is_written(index);
    wholes.push_back(replaced(args_[index], [&](const at::Tensor& tensor) {
      const auto value = whole(tensor);
      return writes && find_value(tensor) != nullptr ? value.clone() : value;
    }));
  }
  results_ = call(wholes);
  write_back(wholes);
  is_whole_ = true;
}

}  // namespace lockstep::split

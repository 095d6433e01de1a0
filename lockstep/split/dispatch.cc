#include "lockstep/split/dispatch.h"

#include <ATen/ATen.h>
#include <c10/core/impl/LocalDispatchKeySet.h>
#include <torch/library.h>

#include <mutex>

#include "lockstep/base/error.h"
#include "lockstep/base/log.h"
#include "lockstep/base/str.h"
#include "lockstep/split/gradients.h"
#include "lockstep/split/on_device.h"
#include "lockstep/split/rules.h"

namespace lockstep::split {
namespace {

thread_local const OnDevice* t_on = nullptr;

bool has_lists_of_tensors(const c10::IValue& value) {
  return value.isTensorList() || (value.isList() && !value.isIntList() && !value.isDoubleList() && !value.isBoolList());
}

// LibTorch's operations below ours are done as ever, also where an OnDevice makes all of them come here.
class Below {
 public:
  Below() : was_included_(c10::impl::tls_is_dispatch_key_included(kSplitKey)) {
    c10::impl::tls_set_dispatch_key_included(kSplitKey, false);
  }
  ~Below() { c10::impl::tls_set_dispatch_key_included(kSplitKey, was_included_); }
  Below(const Below&) = delete;
  Below& operator=(const Below&) = delete;

 private:
  const bool was_included_;
};

void run(const c10::OperatorHandle& op, torch::jit::Stack* stack) {
  const Below below;
  Call call(op, stack);
  if (const auto* const here = OnDevice::current(); here != nullptr && !call.is_cut() && !call.writes()) {
    call.do_on(here->home(), here->device());
  } else {
    if (const auto rule = find_rule(op.schema().name())) rule(call);
    if (!call.is_done()) call.do_whole();
  }
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
  const auto count = op.schema().arguments().size();
  args_.assign(std::make_move_iterator(stack->end() - static_cast<std::ptrdiff_t>(count)),
               std::make_move_iterator(stack->end()));
  stack->resize(stack->size() - count);
  const auto note = [&](const at::Tensor& tensor) {
    const auto* const value = find_value(tensor);
    if (value == nullptr) return;
    if (home_ == nullptr) home_ = value->home;
    is_cut_ = is_cut_ || value->parts.size() > 1;
  };
  for (std::size_t index = 0; index < args_.size(); ++index) {
    const auto& arg = args_[index];
    if (arg.isTensor() && arg.toTensor().defined()) {
      tensors_.push_back(index);
      note(arg.toTensor());
    } else if (has_lists_of_tensors(arg)) {
      for (const c10::IValue& one : arg.toListRef())
        if (one.isTensor()) note(one.toTensor());
    }
  }
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

bool Call::writes() const {
  return std::ranges::any_of(op_.schema().arguments(), [](const c10::Argument& argument) {
    return argument.alias_info() != nullptr && argument.alias_info()->isWrite();
  });
}

bool Call::is_written(std::size_t index) const {
  const auto* const alias = op_.schema().arguments()[index].alias_info();
  return alias != nullptr && alias->isWrite();
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
    if (value->is_replicated) value->parts = find_value(replicate_to(now, value->home))->parts;
    else value->parts = cut(now, value->tiling, *value->home, value->devices);
    connect(tensor(index), *value);
    for (auto& result : *results_)
      if (result.isTensor() && result.toTensor().is_same(now)) result = args_[index];
  }
}

void Call::do_whole() {
  if (is_cut())
    log_once(LogLevel::kInfo, str(name(), " of a split tensor is computed whole, on the first logical device of its replica"));
  std::vector<c10::IValue> wholes;
  for (const auto& arg : args_) wholes.push_back(replaced(arg, [](const at::Tensor& tensor) { return whole(tensor); }));
  results_ = call(wholes);
  write_back(wholes);
}

void Call::do_on(const Home& home, int device) {
  const auto there = home->at(device);
  std::vector<c10::IValue> args;
  for (const auto& arg : args_)
    args.push_back(replaced(arg, [&](const at::Tensor& tensor) { return moved(whole(tensor), there); }));
  results_ = call(std::move(args));
  for (auto& result : *results_)
    if (result.isTensor() && result.toTensor().defined())
      result = make_tensor({home, false, Tiling(result.toTensor().sizes().vec()), {result.toTensor().to(there)}, {device}});
}

const OnDevice* OnDevice::current() noexcept { return t_on; }

OnDevice::OnDevice(Home home, int device)
    : previous_(t_on),
      was_included_(c10::impl::tls_is_dispatch_key_included(kSplitKey)),
      home_(std::move(home)),
      device_(device) {
  register_operations();
  t_on = this;
  c10::impl::tls_set_dispatch_key_included(kSplitKey, device_ != 0);
}

OnDevice::~OnDevice() {
  t_on = previous_;
  c10::impl::tls_set_dispatch_key_included(kSplitKey, was_included_);
}

}  // namespace lockstep::split

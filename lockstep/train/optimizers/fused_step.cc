#include "lockstep/train/optimizers/fused_step.h"

#include <torch/torch.h>

#include <algorithm>
#include <limits>
#include <map>
#include <optional>
#include <typeinfo>
#include <vector>

#include "lockstep/base/error.h"
#include "lockstep/train/optimizers/state_key.h"

namespace lockstep {
namespace {

using torch::optim::Optimizer;
using Tensors = std::vector<at::Tensor>;

// The parameters of one group whose gradients have come, and where the recorded work finds everything.
struct Part {
  Tensors parameters;
  Tensors gradients;

  static bool can_be_fused(const at::Tensor& parameter) {
    const auto& gradient = parameter.grad();
    return gradient.layout() == at::kStrided && gradient.scalar_type() == parameter.scalar_type() &&
           gradient.device() == parameter.device() && gradient.strides() == parameter.strides();
  }
};

std::optional<Part> part_of(const torch::optim::OptimizerParamGroup& group) {
  Part part;
  for (const auto& parameter : group.params()) {
    if (!parameter.grad().defined()) continue;
    if (!Part::can_be_fused(parameter)) return std::nullopt;
    part.parameters.push_back(parameter);
    part.gradients.push_back(parameter.grad());
  }
  return part;
}

// The same for all groups; nothing when one cannot be done so.
std::optional<std::vector<Part>> parts_of(const Optimizer& optimizer) {
  std::vector<Part> parts;
  for (const auto& group : optimizer.param_groups()) {
    auto part = part_of(group);
    if (!part) return std::nullopt;
    parts.push_back(std::move(*part));
  }
  return parts;
}

using When = FusedStep::When;

// What is made while a step is recorded would be made again with every step.
void require_done_before(When when) {
  if (when == When::kRecorded)
    throw Error(
        ErrorCode::kFailedPrecondition,
        "a parameter's gradient has come for the first time, and its optimizer's state cannot be made in a recorded step");
}

// A number that recorded work reads, and the host may change between steps.
class DeviceNumber {
 public:
  DeviceNumber(double value, c10::Device device)
      : tensor_(at::full({}, value, at::TensorOptions(at::kFloat).device(device))), value_(value) {}
  void set(double value) {
    if (value != value_) tensor_.fill_(value);
    value_ = value;
  }
  // The device has changed it.
  void note(double value) { value_ = value; }
  // It is written before it is used next.
  void forget() { value_ = std::numeric_limits<double>::quiet_NaN(); }
  const at::Tensor& tensor() const { return tensor_; }

 private:
  at::Tensor tensor_;
  double value_;
};

// Learning rates, one for each group.
class Rates {
 public:
  void update(const Optimizer& optimizer, c10::Device device, When when) {
    const auto& groups = optimizer.param_groups();
    for (std::size_t i = 0; i < groups.size(); ++i) {
      const auto rate = groups[i].options().get_lr();
      if (i == rates_.size()) require_done_before(when), rates_.emplace_back(rate, device);
      else if (when == When::kRecorded) rates_[i].forget();
      else rates_[i].set(rate);
    }
  }
  const at::Tensor& of(std::size_t group) const { return rates_[group].tensor(); }

 private:
  std::vector<DeviceNumber> rates_;
};

// Whether all but the rate is the same: recorded work has it as numbers of its own.
template <typename Options>
bool is_same(Options a, Options b) {
  a.set_lr(0);
  b.set_lr(0);
  return a == b;
}

template <typename Options>
std::vector<Options> options_of(const Optimizer& optimizer) {
  std::vector<Options> all;
  for (const auto& group : optimizer.param_groups()) all.push_back(static_cast<const Options&>(group.options()));
  return all;
}

// The parameters' state, made where there is none. The map holds it by address, which may change with every load.
template <typename State, typename Map, typename Make>
State& state_of(Map& states, const at::Tensor& parameter, Make&& make) {
  auto& state = states[state_key(states, parameter)];
  if (state == nullptr) state = make();
  return static_cast<State&>(*state);
}

// Adam and AdamW: one kind of state, and of options.
template <typename Options, typename State, auto fused>
class FusedAdam final : public FusedStep {
 public:
  explicit FusedAdam(Optimizer& optimizer) : optimizer_(optimizer) {}

  bool step(When when) override {
    const torch::NoGradGuard no_grad;
    auto parts = parts_of(optimizer_);
    if (!parts) return false;
    options_ = options_of<Options>(optimizer_);
    used_.clear();
    for (std::size_t i = 0; i < parts->size(); ++i)
      if (!(*parts)[i].parameters.empty()) update(i, (*parts)[i], when);
    return true;
  }

  ReplayPart replay_part() override {
    const auto used = std::make_shared<const std::vector<Used>>(used_);
    return {.is_current = [this, used, options = options_] { return is_current(*used, options); },
            .before = [this, used] { bring_up(*used); },
            .after = [this, used] { count(*used, 1); },
            .undo = [this, used] { count(*used, -1); }};
  }

 private:
  // A parameter's state, and what the recorded work knows of it.
  struct Used {
    at::Tensor parameter;
    const void* first;
    const void* second;
  };

  State& state_of_parameter(const at::Tensor& parameter) {
    return state_of<State>(optimizer_.state(), parameter, [] { return std::make_unique<State>(); });
  }

  void update(std::size_t group, Part& part, When when) {
    const auto& options = options_[group];
    const auto device = part.parameters[0].device();
    rates_.update(optimizer_, device, when);
    Tensors first, second, largest, steps;
    for (const auto& parameter : part.parameters) {
      auto& state = state_of_parameter(parameter);
      if (!state.exp_avg().defined()) {
        require_done_before(when);
        state.exp_avg(at::zeros_like(parameter, at::MemoryFormat::Preserve));
        state.exp_avg_sq(at::zeros_like(parameter, at::MemoryFormat::Preserve));
      }
      if (options.amsgrad() && !state.max_exp_avg_sq().defined()) {
        require_done_before(when);
        state.max_exp_avg_sq(at::zeros_like(parameter, at::MemoryFormat::Preserve));
      }
      first.push_back(state.exp_avg());
      second.push_back(state.exp_avg_sq());
      if (options.amsgrad()) largest.push_back(state.max_exp_avg_sq());
      if (!steps_.contains(parameter.unsafeGetTensorImpl())) require_done_before(when);
      auto& count = steps_.try_emplace(parameter.unsafeGetTensorImpl(), 0, device).first->second;
      if (when == When::kDone) count.set(static_cast<double>(state.step()));
      steps.push_back(count.tensor());
      used_.push_back({parameter, state.exp_avg().data_ptr(), state.exp_avg_sq().data_ptr()});
    }
    at::_foreach_add_(steps, 1);
    fused(part.parameters, part.gradients, first, second, largest, steps, rates_.of(group), std::get<0>(options.betas()),
          std::get<1>(options.betas()), options.weight_decay(), options.eps(), options.amsgrad(), /*maximize=*/false);
    for (const auto& parameter : part.parameters) {
      auto& state = state_of_parameter(parameter);
      auto& count = steps_.at(parameter.unsafeGetTensorImpl());
      state.step(state.step() + 1);
      if (when == When::kDone) count.note(static_cast<double>(state.step()));
      else count.forget();
    }
  }

  bool is_current(const std::vector<Used>& used, const std::vector<Options>& options) {
    if (!std::ranges::equal(options_of<Options>(optimizer_), options, is_same<Options>)) return false;
    return std::ranges::all_of(used, [&](const Used& one) {
      const auto& state = state_of_parameter(one.parameter);
      return state.exp_avg().defined() && state.exp_avg().data_ptr() == one.first &&
             state.exp_avg_sq().data_ptr() == one.second;
    });
  }

  void bring_up(const std::vector<Used>& used) {
    const torch::NoGradGuard no_grad;
    if (used.empty()) return;
    rates_.update(optimizer_, used[0].parameter.device(), When::kDone);
    for (const auto& one : used)
      steps_.at(one.parameter.unsafeGetTensorImpl()).set(static_cast<double>(state_of_parameter(one.parameter).step()));
  }

  void count(const std::vector<Used>& used, int by) {
    for (const auto& one : used) {
      auto& state = state_of_parameter(one.parameter);
      state.step(state.step() + by);
      if (by > 0) steps_.at(one.parameter.unsafeGetTensorImpl()).note(static_cast<double>(state.step()));
    }
  }

  Optimizer& optimizer_;
  Rates rates_;
  std::map<const void*, DeviceNumber> steps_;
  std::vector<Used> used_;  // of the last step
  std::vector<Options> options_;
};

class FusedSgd final : public FusedStep {
 public:
  explicit FusedSgd(Optimizer& optimizer) : optimizer_(optimizer) {}

  bool step(When when) override {
    const torch::NoGradGuard no_grad;
    auto parts = parts_of(optimizer_);
    if (!parts) return false;
    options_ = options_of<torch::optim::SGDOptions>(optimizer_);
    used_.clear();
    for (std::size_t i = 0; i < parts->size(); ++i)
      if (!(*parts)[i].parameters.empty()) update(i, (*parts)[i], when);
    return true;
  }

  ReplayPart replay_part() override {
    return {.is_current =
                [this, used = used_, options = options_] {
                  return std::ranges::equal(options_of<torch::optim::SGDOptions>(optimizer_), options,
                                            is_same<torch::optim::SGDOptions>) &&
                         std::ranges::all_of(used, [&](const Used& one) {
                           const auto& buffer = state_of_parameter(one.parameter).momentum_buffer();
                           return buffer.defined() ? buffer.data_ptr() == one.buffer : one.buffer == nullptr;
                         });
                },
            .before = [this] { rates_.update(optimizer_, device_, When::kDone); }};
  }

 private:
  struct Used {
    at::Tensor parameter;
    const void* buffer;
  };

  torch::optim::SGDParamState& state_of_parameter(const at::Tensor& parameter) {
    return state_of<torch::optim::SGDParamState>(optimizer_.state(), parameter,
                                                 [] { return std::make_unique<torch::optim::SGDParamState>(); });
  }

  // Those whose momentum begins, and those whose goes on.
  void update(std::size_t group, Part& part, When when) {
    const auto& options = options_[group];
    device_ = part.parameters[0].device();
    rates_.update(optimizer_, device_, when);
    if (options.momentum() == 0) return apply(group, part, {}, /*is_first=*/false);
    Part first, later;
    Tensors first_buffers, later_buffers;
    for (std::size_t i = 0; i < part.parameters.size(); ++i) {
      auto& state = state_of_parameter(part.parameters[i]);
      const bool is_first = !state.momentum_buffer().defined();
      if (is_first) require_done_before(when);
      if (is_first) state.momentum_buffer(at::empty_like(part.parameters[i], at::MemoryFormat::Preserve));
      auto& list = is_first ? first : later;
      list.parameters.push_back(part.parameters[i]);
      list.gradients.push_back(part.gradients[i]);
      (is_first ? first_buffers : later_buffers).push_back(state.momentum_buffer());
      used_.push_back({part.parameters[i], state.momentum_buffer().data_ptr()});
    }
    if (!first.parameters.empty()) apply(group, first, first_buffers, /*is_first=*/true);
    if (!later.parameters.empty()) apply(group, later, later_buffers, /*is_first=*/false);
  }

  void apply(std::size_t group, Part& part, const Tensors& buffers, bool is_first) const {
    const auto& options = options_[group];
    at::_fused_sgd_(part.parameters, part.gradients, buffers, options.weight_decay(), options.momentum(), rates_.of(group),
                    options.dampening(), options.nesterov(), /*maximize=*/false, is_first);
  }

  Optimizer& optimizer_;
  Rates rates_;
  c10::Device device_{c10::kCPU};
  std::vector<Used> used_;
  std::vector<torch::optim::SGDOptions> options_;
};

// All parameters are float32, on one GPU.
bool is_on_gpu(const Optimizer& optimizer) {
  const at::Tensor* first = nullptr;
  for (const auto& group : optimizer.param_groups())
    for (const auto& parameter : group.params()) {
      if (first == nullptr) first = &parameter;
      if (!parameter.is_cuda() || parameter.scalar_type() != at::kFloat || parameter.device() != first->device()) return false;
    }
  return first != nullptr;
}

constexpr auto kFusedAdam = [](auto&&... arguments) { at::_fused_adam_(arguments...); };
constexpr auto kFusedAdamW = [](auto&&... arguments) { at::_fused_adamw_(arguments...); };

}  // namespace

std::unique_ptr<FusedStep> FusedStep::make(Optimizer& optimizer) {
  using namespace torch::optim;
  if (!is_on_gpu(optimizer)) return nullptr;
  // A class derived from one of these may do something else.
  if (typeid(optimizer) == typeid(SGD)) return std::make_unique<FusedSgd>(optimizer);
  if (typeid(optimizer) == typeid(Adam)) return std::make_unique<FusedAdam<AdamOptions, AdamParamState, kFusedAdam>>(optimizer);
  if (typeid(optimizer) == typeid(AdamW))
    return std::make_unique<FusedAdam<AdamWOptions, AdamWParamState, kFusedAdamW>>(optimizer);
  return nullptr;
}

}  // namespace lockstep

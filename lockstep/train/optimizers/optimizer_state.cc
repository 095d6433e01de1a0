#include "lockstep/train/optimizers/optimizer_state.h"

#include <c10/util/Type.h>
#include <torch/torch.h>

#include <map>
#include <sstream>

#include "lockstep/base/error.h"
#include "lockstep/base/str.h"
#include "lockstep/train/optimizers/slot_optimizer.h"
#include "lockstep/train/optimizers/state_key.h"

namespace lockstep {
namespace {

using torch::optim::OptimizerParamState;
constexpr const char* kArchive = "archive";

// Where a parameter's state is written to or read from: tensor(name, value) and number(name, value), both ways.
template <typename Visitor>
void visit(torch::optim::SGDParamState& state, Visitor& visitor) {
  visitor.tensor("momentum_buffer", state.momentum_buffer());
}

template <typename State, typename Visitor>
requires requires(State& state) { state.max_exp_avg_sq(); }
void visit(State& state, Visitor& visitor) {  // Adam and AdamW
  visitor.number("step", state.step());
  visitor.tensor("exp_avg", state.exp_avg());
  visitor.tensor("exp_avg_sq", state.exp_avg_sq());
  visitor.tensor("max_exp_avg_sq", state.max_exp_avg_sq());
}

template <typename Visitor>
void visit(torch::optim::RMSpropParamState& state, Visitor& visitor) {
  visitor.number("step", state.step());
  visitor.tensor("square_avg", state.square_avg());
  visitor.tensor("momentum_buffer", state.momentum_buffer());
  visitor.tensor("grad_avg", state.grad_avg());
}

template <typename Visitor>
void visit(torch::optim::AdagradParamState& state, Visitor& visitor) {
  visitor.number("step", state.step());
  visitor.tensor("sum", state.sum());
}

struct Writer {
  const StateMemory memory;
  OptimizerState& out;
  const std::string& parameter;

  void tensor(const std::string& name, const at::Tensor& value) {
    if (!value.defined()) return;
    const auto own = value.detach();
    out.tensors.emplace_back(str(name, "/", parameter), memory == StateMemory::kCopied ? own.clone() : own);
  }
  template <typename T>
  void number(const std::string& name, const T& value) {
    out.numbers.emplace_back(str(name, "/", parameter), static_cast<double>(value));
  }
};

// Takes what it finds, and notes what it has taken.
struct Reader {
  const bool copies;
  std::map<std::string, at::Tensor>& tensors;
  std::map<std::string, double>& numbers;
  const std::string& name;
  const at::Tensor& parameter;
  bool has_any = false;

  void tensor(const std::string& what, at::Tensor& value) {
    const auto found = tensors.find(str(what, "/", name));
    if (found == tensors.end()) return;
    if (found->second.sizes() != parameter.sizes())
      throw Error(ErrorCode::kInvalidArgument,
                  lockstep::str("optimizer state '", found->first, "' has shape ", found->second.sizes(), ", the parameter ",
                                parameter.sizes(), "; the state must come from the same model"));
    value = copies ? found->second.detach().to(parameter.device()).clone() : found->second;
    tensors.erase(found);
    has_any = true;
  }
  template <typename T>
  void number(const std::string& what, T& value) {
    const auto found = numbers.find(str(what, "/", name));
    if (found == numbers.end()) return;
    value = static_cast<T>(found->second);
    numbers.erase(found);
    has_any = true;
  }
};

template <typename Optimizer, typename State, typename F>
bool try_state_type(const torch::optim::Optimizer& optimizer, F& fn) {
  if (dynamic_cast<const Optimizer*>(&optimizer) == nullptr) return false;
  fn(static_cast<State*>(nullptr));
  return true;
}

// Calls fn with a null pointer to the type of the optimizer's states; false for an optimizer that is not known.
template <typename F>
bool with_state_type(const torch::optim::Optimizer& optimizer, F fn) {
  namespace optim = torch::optim;
  return try_state_type<optim::SGD, optim::SGDParamState>(optimizer, fn) ||
         try_state_type<optim::Adam, optim::AdamParamState>(optimizer, fn) ||
         try_state_type<optim::AdamW, optim::AdamWParamState>(optimizer, fn) ||
         try_state_type<optim::RMSprop, optim::RMSpropParamState>(optimizer, fn) ||
         try_state_type<optim::Adagrad, optim::AdagradParamState>(optimizer, fn) ||
         try_state_type<SlotOptimizer, SlotState>(optimizer, fn);
}

// The tensors and numbers of a state: LibTorch's by their own names, ours by the optimizer's slots.
template <typename State, typename Visitor>
void visit_state(const torch::optim::Optimizer& optimizer, State& state, Visitor& visitor) {
  if constexpr (std::is_same_v<State, SlotState>) {
    visitor.number("step", state.step);
    visitor.number("factor", state.factor);
    const auto& slots = static_cast<const SlotOptimizer&>(optimizer).slots();
    state.slots.resize(slots.size());
    for (std::size_t i = 0; i < slots.size(); ++i) visitor.tensor(slots[i].name, state.slots[i]);
  } else {
    visit(state, visitor);
  }
}

std::string name_of_parameter(const at::Tensor& parameter, const NamedTensors& parameters) {
  for (const auto& [name, known] : parameters)
    if (known.is_same(parameter)) return name;
  throw Error(ErrorCode::kInvalidArgument,
              lockstep::str("the optimizer has a parameter of shape ", parameter.sizes(), " that is not among those given"));
}

at::Tensor archive_of(const torch::optim::Optimizer& optimizer) {
  torch::serialize::OutputArchive archive;
  optimizer.save(archive);
  std::ostringstream stream;
  archive.save_to(stream);
  const auto bytes = stream.str();
  auto tensor = at::empty({static_cast<std::int64_t>(bytes.size())}, at::kByte);
  std::copy(bytes.begin(), bytes.end(), tensor.data_ptr<std::uint8_t>());
  return tensor;
}

const at::Tensor& archive_in(const OptimizerState& state) {
  if (state.tensors.size() != 1 || state.tensors[0].first != kArchive || state.tensors[0].second.scalar_type() != at::kByte)
    throw Error(ErrorCode::kInvalidArgument,
                "the optimizer state is by name, and this optimizer's is LibTorch's archive; the "
                "state must come from the same kind of optimizer");
  return state.tensors[0].second;
}

void load_archive(torch::optim::Optimizer& optimizer, const OptimizerState& state) {
  const auto bytes = archive_in(state).cpu().contiguous();
  torch::serialize::InputArchive archive;
  archive.load_from(reinterpret_cast<const char*>(bytes.data_ptr<std::uint8_t>()), static_cast<std::size_t>(bytes.numel()));
  optimizer.load(archive);
}

std::string group_key(std::size_t group) { return str("learning_rate/", group); }

// What is left was not for this optimizer.
void require_nothing_left(const std::map<std::string, at::Tensor>& tensors, const std::map<std::string, double>& numbers) {
  std::vector<std::string> left;
  for (const auto& [name, tensor] : tensors) left.push_back(name);
  for (const auto& [name, number] : numbers) left.push_back(name);
  if (left.empty()) return;
  throw Error(ErrorCode::kInvalidArgument,
              str("optimizer state that neither this kind of optimizer nor these parameters have: ", join(", ", left),
                  "; it must come from the same kind of optimizer over the same model"));
}

// Puts the state in place, or only looks whether it could.
void take_state(torch::optim::Optimizer& optimizer, const NamedTensors& parameters, const OptimizerState& state, bool is_check,
                StateMemory memory) {
  std::map<std::string, at::Tensor> tensors(state.tensors.begin(), state.tensors.end());
  std::map<std::string, double> numbers(state.numbers.begin(), state.numbers.end());
  const bool is_known = with_state_type(optimizer, [&]<typename State>(State*) {
    auto& groups = optimizer.param_groups();
    std::vector<std::pair<at::Tensor, std::unique_ptr<State>>> made;
    std::vector<std::pair<std::size_t, double>> rates;
    for (std::size_t group = 0; group < groups.size(); ++group) {
      if (const auto rate = numbers.find(group_key(group)); rate != numbers.end()) {
        rates.emplace_back(group, rate->second);
        numbers.erase(rate);
      }
      for (const auto& parameter : groups[group].params()) {
        const auto name = name_of_parameter(parameter, parameters);
        auto mine = std::make_unique<State>();
        Reader reader{memory == StateMemory::kCopied, tensors, numbers, name, parameter};
        visit_state(optimizer, *mine, reader);
        if (reader.has_any) made.emplace_back(parameter, std::move(mine));
      }
    }
    require_nothing_left(tensors, numbers);
    if (is_check) return;
    optimizer.state().clear();
    for (auto& [parameter, mine] : made) optimizer.state()[state_key(optimizer.state(), parameter)] = std::move(mine);
    for (const auto& [group, rate] : rates) groups[group].options().set_lr(rate);
  });
  if (is_known) return;
  if (is_check) archive_in(state);
  else load_archive(optimizer, state);
}

}  // namespace

OptimizerState get_optimizer_state(const torch::optim::Optimizer& optimizer, const NamedTensors& parameters,
                                   StateMemory memory) {
  OptimizerState out;
  const bool is_known = with_state_type(optimizer, [&]<typename State>(State*) {
    const auto& groups = optimizer.param_groups();
    for (std::size_t group = 0; group < groups.size(); ++group) {
      out.numbers.emplace_back(group_key(group), groups[group].options().get_lr());
      for (const auto& parameter : groups[group].params()) {
        const auto name = name_of_parameter(parameter, parameters);
        const auto found = optimizer.state().find(state_key(optimizer.state(), parameter));
        if (found == optimizer.state().end()) continue;
        Writer writer{memory, out, name};
        auto copy = static_cast<const State&>(*found->second);  // shares the tensors
        visit_state(optimizer, copy, writer);
      }
    }
  });
  if (!is_known) out.tensors.emplace_back(kArchive, archive_of(optimizer));
  return out;
}

void set_optimizer_state(torch::optim::Optimizer& optimizer, const NamedTensors& parameters, const OptimizerState& state,
                         StateMemory memory) {
  take_state(optimizer, parameters, state, false, memory);
}

void check_optimizer_state(torch::optim::Optimizer& optimizer, const NamedTensors& parameters, const OptimizerState& state) {
  take_state(optimizer, parameters, state, true, StateMemory::kShared);
}

std::string optimizer_kind(const torch::optim::Optimizer& optimizer) {
  auto name = c10::demangle(typeid(optimizer).name());
  name.resize(std::min(name.find('<'), name.size()));
  const auto scope = name.rfind("::");
  return scope == std::string::npos ? name : name.substr(scope + 2);
}

std::vector<at::Tensor> take_averages(const NamedTensors& averages, const NamedTensors& parameters) {
  std::vector<at::Tensor> taken;
  if (averages.empty()) return taken;
  std::map<std::string, at::Tensor> left(averages.begin(), averages.end());
  for (const auto& [name, parameter] : parameters) {
    const auto found = left.find(kAveragePrefix + name);
    if (found == left.end())
      throw Error(ErrorCode::kInvalidArgument,
                  str("optimizer state: '", kAveragePrefix, name, "' is missing; the state must come from the same model"));
    if (found->second.sizes() != parameter.sizes())
      throw Error(ErrorCode::kInvalidArgument,
                  lockstep::str("optimizer state '", found->first, "' has shape ", found->second.sizes(), ", the parameter ",
                                parameter.sizes(), "; the state must come from the same model"));
    taken.push_back(found->second.detach().to(parameter.device()).clone());
    left.erase(found);
  }
  require_nothing_left(left, {});
  return taken;
}

}  // namespace lockstep

#include "lockstep/train/optimizers/server_rule.h"

#include <torch/torch.h>

#include <cmath>
#include <numeric>

#include "lockstep/base/error.h"
#include "lockstep/base/on_exit.h"
#include "lockstep/base/str.h"
#include "lockstep/collective/indexed_slices.h"
#include "lockstep/ps/rows.h"
#include "lockstep/train/optimizers/clip.h"
#include "lockstep/train/optimizers/optimizer_spec.h"
#include "lockstep/train/optimizers/optimizer_state.h"

namespace lockstep {
namespace {

constexpr const char* kParameter = "value";  // its name in LibTorch's optimizer's state

std::span<const std::int64_t> ids_in(const at::Tensor& ids) {
  return {ids.data_ptr<std::int64_t>(), static_cast<std::size_t>(ids.numel())};
}

std::size_t row_bytes_of(const at::Tensor& table) {
  return static_cast<std::size_t>(table.numel() / std::max<std::int64_t>(table.size(0), 1)) * table.element_size();
}

at::Tensor gather(const at::Tensor& table, const at::Tensor& ids) {
  auto sizes = table.sizes().vec();
  sizes[0] = ids.numel();
  auto rows = at::empty(sizes, table.options());
  ps::gather_rows(static_cast<const std::byte*>(table.data_ptr()), row_bytes_of(table), ids_in(ids),
                  static_cast<std::byte*>(rows.data_ptr()));
  return rows;
}

void scatter(at::Tensor& table, const at::Tensor& ids, const at::Tensor& rows) {
  const auto dense = rows.contiguous();
  ps::scatter_rows(static_cast<std::byte*>(table.data_ptr()), row_bytes_of(table), ids_in(ids),
                   static_cast<const std::byte*>(dense.data_ptr()));
}

// Every id once, in ascending order, and what belongs to it added up in the order it came.
struct Summed {
  at::Tensor ids;
  at::Tensor rows;
};

Summed add_up(const at::Tensor& ids, const at::Tensor& rows) {
  const auto given = ids_in(ids);
  if (std::ranges::adjacent_find(given, std::greater_equal<>()) == given.end()) return {ids, rows};
  std::vector<std::int64_t> each(given.begin(), given.end());
  std::ranges::sort(each);
  each.erase(std::unique(each.begin(), each.end()), each.end());
  auto places = at::empty_like(ids);
  std::ranges::transform(given, places.data_ptr<std::int64_t>(),
                         [&](std::int64_t id) { return std::ranges::lower_bound(each, id) - each.begin(); });
  auto sizes = rows.sizes().vec();
  sizes[0] = static_cast<std::int64_t>(each.size());
  return {at::tensor(each, at::kLong), at::zeros(sizes, rows.options()).index_add_(0, places, rows)};
}

// "exp_avg/value" and "exp_avg": LibTorch's optimizers name states by parameter, a rule has one.
std::string short_name(const std::string& name) { return name.substr(0, name.rfind('/')); }
std::string long_name(const std::string& name) { return str(name, "/", name == "learning_rate" ? "0" : kParameter); }

class ServerRule final : public ps::UpdateRule {
 public:
  ServerRule(OptimizerSpec spec, const at::Tensor& value)
      : spec_(std::move(spec)), parameter_(value.detach()), optimizer_(spec_.make({parameter_})) {
    const auto* sgd = dynamic_cast<const torch::optim::SGD*>(optimizer_.get());
    takes_sparse_ =
        spec_.takes_sparse() &&
        (sgd == nullptr || static_cast<const torch::optim::SGDOptions&>(sgd->param_groups()[0].options()).momentum() == 0);
    initial_ = initial_state(value);
    has_state_ =
        !get_optimizer_state(*optimizer_, parameters(), StateMemory::kShared).tensors.empty() || initial_.tensors.empty();
  }

  void apply(at::Tensor& value, const at::Tensor& gradient) override {
    const c10::NoGradGuard no_grad;
    parameter_.set_data(value);
    begin();
    if (spec_.rules().weight_decay) parameter_.mul_(kept());
    step(*optimizer_, parameter_, clipped(gradient));
    has_state_ = true;
    ++steps_;
  }

  void apply_rows(at::Tensor& value, const at::Tensor& ids, const at::Tensor& rows) override {
    const c10::NoGradGuard no_grad;
    parameter_.set_data(value);
    begin();
    if (takes_sparse_) apply_sparse(ids, rows);
    else apply_touched(add_up(ids, rows));
    has_state_ = true;
    ++steps_;
  }

  std::size_t room_for(std::size_t gradient_bytes) const override {
    constexpr std::size_t kTemporaries = 8;  // what the largest formula (Ftrl) has at a time, and rows that are gathered
    return (has_state_ ? 0 : state_bytes()) + (kTemporaries + initial_.tensors.size()) * gradient_bytes;
  }

  std::size_t state_bytes() const noexcept override { return initial_.tensors.size() * parameter_.nbytes(); }

  double learning_rate() const override {
    return has_schedule() ? spec_.rules().learning_rate.at(steps_) : optimizer_->param_groups()[0].options().get_lr();
  }

  bool has_schedule() const noexcept override { return spec_.rules().learning_rate.is_schedule(); }

  void set_learning_rate(double rate) override {
    if (has_schedule())
      throw Error(ErrorCode::kInvalidArgument,
                  str("a learning rate of ", rate, ": a schedule gives it; make the optimizer with a number to set it"));
    if (!(rate >= 0 && std::isfinite(rate)))
      throw Error(ErrorCode::kInvalidArgument, str("a learning rate of ", rate, "; it is a number from 0 on"));
    set_rate(*optimizer_, rate);
  }

  std::int64_t steps() const noexcept override { return steps_; }

  ps::RuleState state() const override {
    auto own = get_optimizer_state(*optimizer_, parameters(), StateMemory::kShared);
    ps::RuleState out;
    for (auto& [name, tensor] : own.tensors) out.tensors.emplace_back(short_name(name), std::move(tensor));
    for (const auto& [name, number] : own.numbers) out.numbers.emplace_back(short_name(name), number);
    out.numbers.emplace_back(kStepsName, static_cast<double>(steps_));
    return out;
  }

  void load_state(const ps::RuleState& state) override {
    OptimizerState own;
    std::int64_t steps = 0;
    for (const auto& [name, tensor] : state.tensors) {
      if (tensor.scalar_type() != parameter_.scalar_type())
        throw Error(ErrorCode::kInvalidArgument,
                    lockstep::str("optimizer state '", name, "' is ", tensor.scalar_type(), ", the variable ",
                                  parameter_.scalar_type(), "; it must come from the same variable"));
      own.tensors.emplace_back(long_name(name), tensor);
    }
    for (const auto& [name, number] : state.numbers) {
      if (name == kStepsName) steps = static_cast<std::int64_t>(number);
      else own.numbers.emplace_back(long_name(name), number);
    }
    set_optimizer_state(*optimizer_, parameters(), own);
    has_state_ = !own.tensors.empty() || initial_.tensors.empty();
    steps_ = steps;
  }

 private:
  NamedTensors parameters() const { return {{kParameter, parameter_}}; }

  static void set_rate(torch::optim::Optimizer& optimizer, double rate) { optimizer.param_groups()[0].options().set_lr(rate); }

  void begin() {
    if (has_schedule()) set_rate(*optimizer_, spec_.rules().learning_rate.at(steps_));
  }

  // Of a weight, after decay.
  double kept() const { return 1 - *spec_.rules().weight_decay * optimizer_->param_groups()[0].options().get_lr(); }

  at::Tensor clipped(const at::Tensor& gradient) const {
    const auto& rules = spec_.rules();
    if (!rules.clipnorm && !rules.clipvalue) return gradient;
    auto copy = gradient.clone();
    if (rules.clipnorm) clip_norm(copy, *rules.clipnorm);
    if (rules.clipvalue) clip_value(copy, *rules.clipvalue);
    return copy;
  }

  static void step(torch::optim::Optimizer& optimizer, at::Tensor& parameter, const at::Tensor& gradient) {
    parameter.mutable_grad() = gradient;
    const OnExit forget([&] { parameter.mutable_grad().reset(); });
    optimizer.step();
  }

  // Of one row, before the first update: what a step from nothing leaves when there is nothing to learn.
  OptimizerState initial_state(const at::Tensor& value) const {
    auto sizes = value.sizes().vec();
    if (!sizes.empty()) sizes[0] = 1;
    auto row = at::zeros(sizes, value.options());
    const auto optimizer = spec_.make({row});
    const c10::NoGradGuard no_grad;
    step(*optimizer, row, at::zeros_like(row));
    return get_optimizer_state(*optimizer, {{kParameter, row}});
  }

  // Rows can be changed only where there is a state, which LibTorch makes in the first dense step.
  void make_state() {
    if (has_state_) return;
    auto state = get_optimizer_state(*optimizer_, parameters(), StateMemory::kShared);
    for (const auto& [name, row] : initial_.tensors)
      state.tensors.emplace_back(name, at::empty(parameter_.sizes(), parameter_.options()).copy_(row.expand_as(parameter_)));
    set_optimizer_state(*optimizer_, parameters(), state, StateMemory::kShared);
    has_state_ = true;
  }

  void apply_sparse(const at::Tensor& ids, const at::Tensor& rows) {
    if (spec_.rules().weight_decay) {
      const auto touched = add_up(ids, rows).ids;
      scatter(parameter_, touched, gather(parameter_, touched).mul_(kept()));
    }
    prefetch_rows(parameter_, ids);
    step(*optimizer_, parameter_, clipped(at::_sparse_coo_tensor_unsafe(ids.unsqueeze(0), rows, parameter_.sizes())));
  }

  // The same optimizer, over the touched rows of the value and of its state.
  void apply_touched(const Summed& summed) {
    make_state();
    auto all = get_optimizer_state(*optimizer_, parameters(), StateMemory::kShared);
    auto row_state = all;
    for (auto& [name, tensor] : row_state.tensors) tensor = gather(tensor, summed.ids);
    auto rows = gather(parameter_, summed.ids);
    const auto optimizer = spec_.make({rows});
    const NamedTensors row_parameters = {{kParameter, rows}};
    set_optimizer_state(*optimizer, row_parameters, row_state, StateMemory::kShared);
    if (spec_.rules().weight_decay) rows.mul_(kept());
    step(*optimizer, rows, clipped(summed.rows));
    row_state = get_optimizer_state(*optimizer, row_parameters, StateMemory::kShared);
    scatter(parameter_, summed.ids, rows);
    for (std::size_t i = 0; i < all.tensors.size(); ++i)
      scatter(all.tensors[i].second, summed.ids, row_state.tensors[i].second);
    all.numbers = row_state.numbers;
    set_optimizer_state(*optimizer_, parameters(), all, StateMemory::kShared);
  }

  // Const after construction.
  const OptimizerSpec spec_;
  bool takes_sparse_ = false;
  OptimizerState initial_;

  at::Tensor parameter_;  // the variable's memory, under the one address that LibTorch's optimizer knows
  std::unique_ptr<torch::optim::Optimizer> optimizer_;
  bool has_state_ = false;
  std::int64_t steps_ = 0;
};

}  // namespace

std::unique_ptr<ps::UpdateRule> make_server_rule(const std::string& spec, const at::Tensor& value) {
  auto made = OptimizerSpec::from_text(spec);
  const auto& rules = made.rules();
  const auto refuse = [&](const char* what) {
    throw Error(ErrorCode::kUnimplemented,
                str("optimizer '", made.name(), "' on a parameter server: ", what,
                    " needs all variables or steps of a worker; do without, or do it in the worker"));
  };
  if (rules.global_clipnorm) refuse("global_clipnorm");
  if (rules.use_ema) refuse("use_ema");
  if (rules.gradient_accumulation_steps) refuse("gradient_accumulation_steps");
  if (value.scalar_type() != at::kFloat && value.scalar_type() != at::kDouble)
    throw Error(ErrorCode::kInvalidArgument, lockstep::str("optimizer '", made.name(), "' over a variable of ",
                                                           value.scalar_type(), "; it must be float32 or float64"));
  return std::make_unique<ServerRule>(std::move(made), value);
}

}  // namespace lockstep

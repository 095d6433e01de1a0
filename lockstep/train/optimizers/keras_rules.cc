#include "lockstep/train/optimizers/keras_rules.h"

#include <torch/torch.h>

#include <cmath>

#include "lockstep/ps/combine.h"
#include "lockstep/ps/rows.h"
#include "lockstep/train/optimizers/slot_optimizer.h"
#include "lockstep/train/optimizers/state_key.h"

namespace lockstep {
namespace {

// Keras's scalars have the parameter's type, and 1 - 0.999 in float32 is off in the fifth digit: so they have here. `fn` gets
// a 0 of that type.
template <typename F>
void in_type_of(const at::Tensor& parameter, F&& fn) {
  if (parameter.scalar_type() == at::kDouble) fn(0.0);
  else fn(0.0F);
}

class AdadeltaOptimizer final : public SlotOptimizer {
 public:
  AdadeltaOptimizer(std::vector<at::Tensor> parameters, double learning_rate, const AdadeltaOptions& options)
      : SlotOptimizer(std::move(parameters), learning_rate), rho_(options.rho), epsilon_(options.epsilon) {}

  const std::vector<Slot>& slots() const override {
    static const std::vector<Slot> all = {{"accumulated_grad"}, {"accumulated_delta"}};
    return all;
  }

 protected:
  void update(const Update& now) const override {
    auto& gradients = now.state.slots[0];
    auto& deltas = now.state.slots[1];
    gradients.mul_(rho_).addcmul_(now.gradient, now.gradient, 1 - rho_);
    const auto delta = (deltas + epsilon_).sqrt_().mul_(now.gradient).div_((gradients + epsilon_).sqrt_());
    deltas.mul_(rho_).addcmul_(delta, delta, 1 - rho_);
    now.parameter.add_(delta, -now.learning_rate);
  }

 private:
  const double rho_;
  const double epsilon_;
};

class AdamaxOptimizer final : public SlotOptimizer {
 public:
  AdamaxOptimizer(std::vector<at::Tensor> parameters, double learning_rate, const AdamaxOptions& options)
      : SlotOptimizer(std::move(parameters), learning_rate), options_(options) {}

  const std::vector<Slot>& slots() const override {
    static const std::vector<Slot> all = {{"exp_avg"}, {"exp_inf"}};
    return all;
  }

 protected:
  void update(const Update& now) const override {
    auto& average = now.state.slots[0];
    auto& norm = now.state.slots[1];
    average.add_(now.gradient - average, 1 - options_.beta_1);
    norm.copy_(at::maximum(norm * options_.beta_2, now.gradient.abs()));
    in_type_of(now.parameter, [&]<typename T>(T) {
      const T correction = 1 - std::pow(static_cast<T>(options_.beta_1), static_cast<T>(now.state.step));
      now.parameter.addcdiv_(average, (norm + options_.epsilon).mul_(correction), -now.learning_rate);
    });
  }

 private:
  const AdamaxOptions options_;
};

class NadamOptimizer final : public SlotOptimizer {
 public:
  NadamOptimizer(std::vector<at::Tensor> parameters, double learning_rate, const NadamOptions& options)
      : SlotOptimizer(std::move(parameters), learning_rate), options_(options) {}

  const std::vector<Slot>& slots() const override {
    static const std::vector<Slot> all = {{"exp_avg"}, {"exp_avg_sq"}};
    return all;
  }

 protected:
  void update(const Update& now) const override {
    auto& first = now.state.slots[0];
    auto& second = now.state.slots[1];
    in_type_of(now.parameter, [&]<typename T>(T) {
      const T beta_1 = static_cast<T>(options_.beta_1);
      const T beta_2 = static_cast<T>(options_.beta_2);
      const T step = static_cast<T>(now.state.step);
      const auto momentum_at = [&](T at) { return beta_1 * (1 - static_cast<T>(0.5) * std::pow(static_cast<T>(0.96), at)); };
      const T momentum = momentum_at(step);
      const T next_momentum = momentum_at(step + 1);
      const T product = static_cast<T>(now.state.factor) * momentum;  // of all momentums so far
      now.state.factor = product;
      first.add_(now.gradient - first, 1 - beta_1);
      second.add_(now.gradient.square() - second, 1 - beta_2);
      const auto direction =
          (first * next_momentum).div_(1 - product * next_momentum) + (now.gradient * (1 - momentum)).div_(1 - product);
      const auto size = (second / (1 - std::pow(beta_2, step))).sqrt_().add_(options_.epsilon);
      now.parameter.addcdiv_(direction, size, -now.learning_rate);
    });
  }

 private:
  const NadamOptions options_;
};

class FtrlOptimizer final : public SlotOptimizer {
 public:
  FtrlOptimizer(std::vector<at::Tensor> parameters, double learning_rate, const FtrlOptions& options)
      : SlotOptimizer(std::move(parameters), learning_rate),
        options_(options),
        slots_({{"accumulator", options.initial_accumulator_value}, {"linear"}}) {}

  const std::vector<Slot>& slots() const override { return slots_; }

 protected:
  void update(const Update& now) const override {
    auto& accumulator = now.state.slots[0];
    auto& linear = now.state.slots[1];
    const double power = -options_.learning_rate_power;
    const double l1 = options_.l1_regularization_strength;
    const double l2 = options_.l2_regularization_strength + options_.beta / (2 * now.learning_rate);
    const auto gradient = now.gradient + now.parameter * (2 * options_.l2_shrinkage_regularization_strength);
    const auto before = accumulator.pow(power);
    accumulator.addcmul_(now.gradient, now.gradient);
    const auto after = accumulator.pow(power);
    linear.add_(gradient - (after - before) / now.learning_rate * now.parameter);
    now.parameter.copy_((linear.clamp(-l1, l1) - linear) / (after / now.learning_rate + 2 * l2));
  }

 private:
  const FtrlOptions options_;
  const std::vector<Slot> slots_;
};

class LionOptimizer final : public SlotOptimizer {
 public:
  LionOptimizer(std::vector<at::Tensor> parameters, double learning_rate, const LionOptions& options)
      : SlotOptimizer(std::move(parameters), learning_rate), options_(options) {}

  const std::vector<Slot>& slots() const override {
    static const std::vector<Slot> all = {{"exp_avg"}};
    return all;
  }

 protected:
  void update(const Update& now) const override {
    auto& average = now.state.slots[0];
    const auto direction = (average * options_.beta_1).add_(now.gradient, 1 - options_.beta_1).sign_();
    now.parameter.add_(direction, -now.learning_rate);
    average.mul_(options_.beta_2).add_(now.gradient, 1 - options_.beta_2);
  }

 private:
  const LionOptions options_;
};

// Whether rows of the table can be found by their addresses, which is several times faster than LibTorch's index_add_().
bool is_plain(const at::Tensor& table, const at::Tensor& ids) {
  const bool is_real = table.scalar_type() == at::kFloat || table.scalar_type() == at::kDouble;
  return table.is_cpu() && table.is_contiguous() && is_real && ids.is_contiguous();
}

std::span<const std::int64_t> ids_in(const at::Tensor& ids) {
  return {ids.data_ptr<std::int64_t>(), static_cast<std::size_t>(ids.numel())};
}

void require_ids(const at::Tensor& table, const at::Tensor& ids) {
  for (const auto id : ids_in(ids)) TORCH_CHECK_INDEX(id >= 0 && id < table.size(0), "row ", id, " of ", table.size(0));
}

void add_rows(at::Tensor& table, const at::Tensor& ids, const at::Tensor& rows) {
  if (!is_plain(table, ids)) return void(table.index_add_(0, ids, rows));
  ps::combine_rows(ps::Operation::Kind::kAddRows, table, ids_in(ids), rows.contiguous());
}

at::Tensor rows_of(const at::Tensor& table, const at::Tensor& ids) {
  if (!is_plain(table, ids) || table.numel() == 0) return table.index_select(0, ids);
  auto sizes = table.sizes().vec();
  sizes[0] = ids.numel();
  auto rows = at::empty(sizes, table.options());
  ps::gather_rows(static_cast<const std::byte*>(table.data_ptr()), table.nbytes() / static_cast<std::size_t>(table.size(0)),
                  ids_in(ids), static_cast<std::byte*>(rows.data_ptr()));
  return rows;
}

// LibTorch's, but for sparse gradients, where it adds up a row's gradients before it squares them: in Keras a row that was
// looked up several times is squared each time. (Several GPUs' gradients come with each row once.)
class RowAdagrad final : public torch::optim::Adagrad {
 public:
  using Adagrad::Adagrad;

  at::Tensor step(LossClosure closure = nullptr) override {
    at::Tensor loss;
    if (closure != nullptr) {
      const at::AutoGradMode with_gradients(true);
      loss = closure();
    }
    const torch::NoGradGuard no_grad;
    std::vector<std::pair<at::Tensor, at::Tensor>> done;
    for (auto& group : param_groups_) {
      for (auto& parameter : group.params()) {
        const auto gradient = parameter.grad();
        if (!gradient.defined() || gradient.layout() != at::kSparse || gradient.sparse_dim() != 1) continue;
        update_rows(parameter, gradient, static_cast<const torch::optim::AdagradOptions&>(group.options()));
        done.emplace_back(parameter, gradient);
        parameter.mutable_grad().reset();  // LibTorch's step passes it by
      }
    }
    Adagrad::step();
    for (auto& [parameter, gradient] : done) parameter.mutable_grad() = gradient;
    return loss;
  }

 private:
  void update_rows(at::Tensor& parameter, const at::Tensor& gradient, const torch::optim::AdagradOptions& options) {
    auto& state = static_cast<torch::optim::AdagradParamState&>(*state_.at(state_key(state_, parameter)));
    state.step(state.step() + 1);
    const auto rows = gradient._indices().squeeze(0);
    const auto values = gradient._values();
    if (is_plain(parameter, rows)) require_ids(parameter, rows);
    auto sum = state.sum();
    add_rows(sum, rows, values.square());
    const auto sizes = rows_of(sum, rows).sqrt_().add_(options.eps());
    add_rows(parameter, rows, values / sizes * -options.lr());
  }
};

}  // namespace

MadeOptimizer make_adagrad(std::vector<at::Tensor> parameters, double learning_rate, const AdagradOptions& options) {
  // sqrt(sum + epsilon), where LibTorch has sqrt(sum) + epsilon: a sum that begins with epsilon gives it.
  return std::make_unique<RowAdagrad>(std::move(parameters),
                                      torch::optim::AdagradOptions(learning_rate)
                                          .initial_accumulator_value(options.initial_accumulator_value + options.epsilon)
                                          .eps(0));
}
MadeOptimizer make_adadelta(std::vector<at::Tensor> parameters, double learning_rate, const AdadeltaOptions& options) {
  return std::make_unique<AdadeltaOptimizer>(std::move(parameters), learning_rate, options);
}
MadeOptimizer make_adamax(std::vector<at::Tensor> parameters, double learning_rate, const AdamaxOptions& options) {
  return std::make_unique<AdamaxOptimizer>(std::move(parameters), learning_rate, options);
}
MadeOptimizer make_nadam(std::vector<at::Tensor> parameters, double learning_rate, const NadamOptions& options) {
  return std::make_unique<NadamOptimizer>(std::move(parameters), learning_rate, options);
}
MadeOptimizer make_ftrl(std::vector<at::Tensor> parameters, double learning_rate, const FtrlOptions& options) {
  return std::make_unique<FtrlOptimizer>(std::move(parameters), learning_rate, options);
}
MadeOptimizer make_lion(std::vector<at::Tensor> parameters, double learning_rate, const LionOptions& options) {
  return std::make_unique<LionOptimizer>(std::move(parameters), learning_rate, options);
}

}  // namespace lockstep

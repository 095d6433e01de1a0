#include "lockstep/train/losses/loss.h"

#include <ATen/ATen.h>

#include <ostream>

#include "lockstep/base/error.h"
#include "lockstep/base/str.h"
#include "lockstep/train/losses/align.h"
#include "lockstep/train/losses/loss_text.h"
#include "lockstep/train/losses/names.h"

namespace lockstep::losses {

struct Loss::State {
  std::string name;
  Rule rule;
  Reduction reduction;
  bool is_masked = false;
  Description description = nullptr;  // null: text cannot describe it
};

std::ostream& operator<<(std::ostream& out, Reduction reduction) {
  switch (reduction) {
    case Reduction::kSumOverBatchSize: return out << "sum_over_batch_size";
    case Reduction::kSum: return out << "sum";
    case Reduction::kMean: return out << "mean";
    case Reduction::kMeanWithSampleWeight: return out << "mean_with_sample_weight";
    case Reduction::kNone: return out << "none";
  }
  return out << "?";
}

namespace {

// The losses times their weights, and the weights; those are undefined when all count the same.
struct Weighed {
  at::Tensor values = {};
  at::Tensor weights = {};
};

Weighed weigh(const std::string& name, const PerExample& losses, const at::Tensor& sample_weight) {
  if (!sample_weight.defined() && !losses.mask.defined()) return {losses.values};
  auto weights = losses.mask.defined() ? losses.mask.to(losses.values.scalar_type()) : at::Tensor();
  if (sample_weight.defined()) {
    const auto given = sample_weight.to(losses.values.options().requires_grad(false));
    const auto pair = weights.defined() ? to_same_rank(weights, given) : Pair{{}, given};
    if (weights.defined()) require_broadcastable(name, {"the losses' mask", pair.first}, {"sample_weight", pair.second});
    weights = weights.defined() ? pair.first * pair.second : given;
  }
  const auto pair = to_same_rank(losses.values, weights);
  require_broadcastable(name, {"the loss of the examples", pair.first}, {"sample_weight", pair.second});
  return {pair.first * pair.second, pair.second};
}

// What the sum of the weighed losses is divided by; nothing: by how many they are.
at::Tensor divisor_of(Reduction reduction, const PerExample& losses, const Weighed& weighed) {
  if (reduction == Reduction::kMeanWithSampleWeight)
    return weighed.weights.defined() ? weighed.weights.sum(at::kDouble) : at::Tensor();
  if (!losses.mask.defined()) return {};
  const auto repeats =
      static_cast<double>(weighed.values.numel()) / static_cast<double>(std::max<std::int64_t>(losses.mask.numel(), 1));
  return losses.mask.sum(at::kDouble) * repeats;
}

bool is_divided(Reduction reduction) { return reduction != Reduction::kSum && reduction != Reduction::kNone; }

}  // namespace

Loss::Loss(std::shared_ptr<const State> state) : state_(std::move(state)) {}
Loss::Loss(const char* name) : Loss(std::string(name)) {}
Loss::Loss(const std::string& name) : Loss(loss_by_name(name)) {}

Loss::Loss(std::string name, Function function, Reduction reduction) {
  require(function != nullptr, "Loss: the function is empty; it must give one value for each example");
  state_ = std::make_shared<const State>(
      State{name,
            [name, function = std::move(function)](const at::Tensor& y_true, const at::Tensor& y_pred) -> PerExample {
              auto values = function(y_true, y_pred);
              if (values.defined()) return {std::move(values)};
              throw Error(ErrorCode::kInvalidArgument,
                          str("the function '", name, "' gave an undefined tensor; it must give one value for each example"));
            },
            reduction});
}

Loss Loss::from_rule(std::string name, Rule rule, Reduction reduction, bool is_masked) {
  return Loss(std::make_shared<const State>(State{std::move(name), std::move(rule), reduction, is_masked}));
}

const std::string& Loss::name() const noexcept { return state_->name; }
Reduction Loss::reduction() const noexcept { return state_->reduction; }

Loss Loss::with_reduction(Reduction reduction) const {
  auto changed = *state_;
  changed.reduction = reduction;
  return Loss(std::make_shared<const State>(std::move(changed)));
}

Loss Loss::described(Description description) const {
  auto changed = *state_;
  changed.description = std::move(description);
  return Loss(std::make_shared<const State>(std::move(changed)));
}

std::string Loss::to_text() const {
  if (state_->description == nullptr)
    throw Error(ErrorCode::kUnimplemented,
                str("loss '", name(),
                    "' is a function that captures something, which cannot be sent to another task; make it a lambda without "
                    "captures, or use one of lockstep/train/losses/losses.h"));
  return text_with(state_->description(), "reduction", str(reduction()));
}

bool Loss::is_divided_by_data() const noexcept {
  return is_divided(reduction()) && (state_->is_masked || reduction() == Reduction::kMeanWithSampleWeight);
}

PerExample Loss::evaluate(const at::Tensor& y_true, const at::Tensor& y_pred) const { return state_->rule(y_true, y_pred); }

at::Tensor Loss::per_example(const at::Tensor& y_true, const at::Tensor& y_pred) const {
  return evaluate(y_true, y_pred).values;
}

at::Tensor Loss::operator()(const at::Tensor& y_true, const at::Tensor& y_pred, const at::Tensor& sample_weight) const {
  const auto losses = evaluate(y_true, y_pred);
  const auto weighed = weigh(state_->name, losses, sample_weight);
  if (state_->reduction == Reduction::kNone || weighed.values.dim() == 0) return weighed.values;
  if (!is_divided(state_->reduction) || weighed.values.numel() == 0) return weighed.values.sum();
  const auto divisor = divisor_of(state_->reduction, losses, weighed);
  if (!divisor.defined()) return weighed.values.mean();
  const auto sum = weighed.values.sum();
  return divide_no_nan(sum, divisor.to(sum.scalar_type()));
}

Loss::Total Loss::total(const at::Tensor& y_true, const at::Tensor& y_pred, const at::Tensor& sample_weight) const {
  const auto losses = evaluate(y_true, y_pred);
  const auto weighed = weigh(state_->name, losses, sample_weight);
  Total total{weighed.values.sum(), {}};
  if (is_divided(state_->reduction)) total.divisor = divisor_of(state_->reduction, losses, weighed);
  if (total.divisor.defined()) return total;
  const auto count = is_divided(state_->reduction) ? weighed.values.numel() : 1;
  total.divisor = at::scalar_tensor(static_cast<double>(count), at::kDouble);
  return total;
}

}  // namespace lockstep::losses

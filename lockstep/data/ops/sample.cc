#include <ATen/ATen.h>

#include <algorithm>
#include <atomic>
#include <cmath>
#include <numeric>

#include "lockstep/base/error.h"
#include "lockstep/base/str.h"
#include "lockstep/data/ops/dice.h"
#include "lockstep/data/ops/ops.h"

namespace lockstep::data::internal {
namespace {

// Numbers of inputs, for ever, each as often as its weight says.
class ChoiceStream final : public Stream<Element> {
 public:
  ChoiceStream(std::vector<double> ends, std::uint64_t seed) : ends_(std::move(ends)), dice_(seed) {}

  bool next(Element& out) override {
    const auto found = std::ranges::upper_bound(ends_, dice_.fraction() * ends_.back());
    const auto last = static_cast<std::int64_t>(ends_.size()) - 1;
    out = Element(at::scalar_tensor(std::min<std::int64_t>(found - ends_.begin(), last), at::kLong));
    return true;
  }
  void save(PositionWriter& to) override {
    to.begin("choices");
    dice_.save(to);
  }
  void restore(PositionReader& from) override {
    from.expect("choices");
    dice_.restore(from);
  }

 private:
  const std::vector<double> ends_;  // the weights up to each, added up
  Dice dice_;
};

class ChoiceNode final : public Node {
 public:
  ChoiceNode(std::vector<double> weights, std::optional<std::uint64_t> seed)
      : weights_(std::move(weights)), is_drawn_(!seed), seed_(seed ? *seed : draw_seed()) {}
  ChoiceNode(const ChoiceNode& other) : weights_(other.weights_), is_drawn_(other.is_drawn_), seed_(other.seed_.load()) {}

  std::unique_ptr<Stream<Element>> open() const override {
    std::vector<double> ends(weights_.size());
    std::partial_sum(weights_.begin(), weights_.end(), ends.begin());
    return std::make_unique<ChoiceStream>(std::move(ends), seed_.load());
  }
  NodePtr with_inputs(std::vector<NodePtr>) const override { return std::make_shared<ChoiceNode>(*this); }
  std::int64_t cardinality() const override { return kInfinite; }
  StaticShape static_shape() const override { return {.is_fixed = true, .has_scalar = true}; }
  std::vector<NodePtr> inputs() const override { return {}; }
  std::string describe() const override {
    return lockstep::str("Choices(", join(", ", weights_), is_drawn_ ? ")" : lockstep::str("; seed ", seed_.load(), ")"));
  }
  std::atomic<std::uint64_t>* drawn_seed() const override { return is_drawn_ ? &seed_ : nullptr; }

 private:
  const std::vector<double> weights_;
  const bool is_drawn_;
  mutable std::atomic<std::uint64_t> seed_;
};

}  // namespace

NodePtr make_sample(std::vector<NodePtr> inputs, std::vector<double> weights, std::optional<std::uint64_t> seed,
                    bool stops_on_empty) {
  if (weights.empty()) weights.assign(inputs.size(), 1.0);
  const bool are_good = std::ranges::all_of(weights, [](double weight) { return std::isfinite(weight) && weight >= 0; });
  if (weights.size() != inputs.size() || !are_good || std::accumulate(weights.begin(), weights.end(), 0.0) <= 0)
    throw Error(ErrorCode::kInvalidArgument,
                lockstep::str("sample_from_datasets: the weights ", join(", ", weights), " do not fit ", inputs.size(),
                              " datasets; give one of 0 or more for each, not all of them 0"));
  // One that is never chosen would keep the others from ending.
  std::vector<NodePtr> chosen;
  std::vector<double> used;
  for (std::size_t i = 0; i < inputs.size(); ++i) {
    if (weights[i] == 0) continue;
    chosen.push_back(inputs[i]);
    used.push_back(weights[i]);
  }
  return make_choose(std::move(chosen), std::make_shared<ChoiceNode>(std::move(used), seed), stops_on_empty);
}

}  // namespace lockstep::data::internal

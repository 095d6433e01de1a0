#include <torch/torch.h>

#include <cstring>

#include "lockstep/base/str.h"
#include "lockstep/collective/tree_sum.h"
#include "lockstep/collective/worker_group.h"
#include "lockstep/replica/replica_set.h"
#include "lockstep/train/model/step_runner.h"

// What a StepRunner's steps add up, and what becomes of it in logs.

namespace lockstep::internal {
namespace {

std::vector<double> added(std::vector<double> a, const std::vector<double>& b) {
  std::ranges::transform(a, b, a.begin(), std::plus<>());
  return a;
}

}  // namespace

void StepRunner::reset() {
  for (auto& sums : sums_) {
    sums.losses.assign(losses_.size() + 1, 0.0);
    sums.on_device.assign(losses_.size() + 1, {});
    sums.rows = 0;
    sums.last = at::Tensor();
  }
  for (auto& tracked : metrics_) tracked.metric.reset_state();
}

StepRunner::Kept StepRunner::keep() const {
  Kept kept{sums_, {}};
  for (const auto& tracked : metrics_) kept.metrics.push_back(tracked.metric.state());
  return kept;
}

void StepRunner::bring_back(Kept kept) {
  reset();
  sums_ = std::move(kept.sums);
  for (std::size_t m = 0; m < metrics_.size(); ++m)
    if (!kept.metrics[m].empty()) metrics_[m].metric.set_state(kept.metrics[m]);
}

std::vector<std::vector<double>> StepRunner::replica_sums() const {
  std::vector<std::vector<double>> all;
  for (const auto& sums : sums_) {
    auto& one = all.emplace_back(sums.losses);
    for (std::size_t k = 0; k < one.size(); ++k)
      if (sums.on_device[k].defined()) one[k] += sums.on_device[k].item<double>();
    one.push_back(sums.rows);
  }
  return all;
}

std::vector<double> StepRunner::loss_sums() const { return tree_fold(replica_sums(), added); }

void StepRunner::set_loss_sums(const std::vector<double>& sums) {
  sums_[0].losses.assign(sums.begin(), sums.end() - 1);
  sums_[0].rows = sums.back();
}

Logs StepRunner::logs_of(const std::vector<double>& sums, bool is_local) const {
  Logs logs;
  if (!losses_.empty() && sums.back() > 0) {
    logs.set("loss", sums[0] / sums.back());
    for (std::size_t k = 0; losses_.size() > 1 && k < losses_.size(); ++k) logs.set(loss_name(k), sums[k + 1] / sums.back());
  }
  for (const auto& tracked : metrics_) {
    const auto value = (is_local ? tracked.metric.local_result() : tracked.metric.result()).to(at::kCPU, at::kDouble);
    if (value.dim() == 0) {
      logs.set(tracked.name, value.item<double>());
      continue;
    }
    for (std::int64_t i = 0; i < value.numel(); ++i) logs.set(str(tracked.name, "_", i), value.reshape(-1)[i].item<double>());
  }
  return logs;
}

Logs StepRunner::local_logs() const { return logs_of(loss_sums(), true); }

// In the canonical order over all replicas: the bits do not depend on how they are spread over workers.
std::vector<double> StepRunner::loss_sums_of_all() const {
  const auto mine = replica_sums();
  auto* workers = model_->replicas() == nullptr ? nullptr : model_->replicas()->workers();
  if (workers == nullptr) return tree_fold(mine, added);
  std::string text;
  for (const auto& one : mine) text.append(reinterpret_cast<const char*>(one.data()), one.size() * sizeof(double));
  const auto bytes = mine[0].size() * sizeof(double);
  std::vector<std::vector<double>> all;
  for (const auto& theirs : workers->exchange("the losses of an epoch", text)) {
    if (theirs.size() % bytes != 0) throw Error(ErrorCode::kFailedPrecondition, "workers have models with different losses");
    for (std::size_t at = 0; at < theirs.size(); at += bytes)
      std::memcpy(all.emplace_back(mine[0].size()).data(), theirs.data() + at, bytes);
  }
  return tree_fold(std::move(all), added);
}

Logs StepRunner::logs() const { return logs_of(loss_sums_of_all(), false); }

double StepRunner::last_loss() const {
  if (!optimizer_) return last_loss_elsewhere_;
  double loss = 0;
  for (const auto& sums : sums_)
    if (sums.last.defined()) loss += sums.last.item<double>();
  return loss;
}

Optimizer& StepRunner::optimizer() {
  if (optimizer_) return *optimizer_;
  throw Error(ErrorCode::kFailedPrecondition,
              "the optimizer of a hosted model is on the parameter servers; a callback sets its rate with "
              "Training::set_learning_rate()");
}

void StepRunner::note_update_elsewhere(double loss) {
  ++updates_elsewhere_;
  last_loss_elsewhere_ = loss;
}

}  // namespace lockstep::internal

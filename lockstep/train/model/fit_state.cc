#include <ATen/ATen.h>

#include <algorithm>
#include <map>
#include <typeinfo>

#include "lockstep/base/number.h"
#include "lockstep/base/str.h"
#include "lockstep/checkpoint/checkpoint_state.h"
#include "lockstep/replica/replica_set.h"
#include "lockstep/train/callbacks/values.h"
#include "lockstep/train/model/fit_loop.h"

// What must be known to go on with a fit() in another process.
//
// Note [resuming a fit]
// 1. A fit() is saved between two steps: in the middle of an epoch, after so many of its steps, or between two epochs, after
//    the callbacks have heard of the end of the first.
// 2. Weights, optimizer and generators are parts of their own (training_checkpoint); here is the rest: how far training is,
//    where the pass over the data is, what losses and metrics have added up, what callbacks remember, whether one of them has
//    stopped training.
// 3. The position of a pass that has ended is kept too: the next pass of a shuffled dataset has another order.

namespace lockstep::internal {
namespace {

// `from`'s content below `prefix`.
void put_all(CheckpointPart& to, const std::string& prefix, const CheckpointPart& from) {
  for (const auto& [name, tensor] : from.tensors) to.tensors.emplace_back(prefix + name, tensor);
  for (const auto& [name, value] : from.values) to.values[prefix + name] = value;
}

// What stands below `prefix`.
CheckpointPart take_all(const CheckpointPart& from, const std::string& prefix) {
  CheckpointPart part;
  for (const auto& [name, tensor] : from.tensors)
    if (name.starts_with(prefix)) part.tensors.emplace_back(name.substr(prefix.size()), tensor);
  for (const auto& [name, value] : from.values)
    if (name.starts_with(prefix)) part.values[name.substr(prefix.size())] = value;
  return part;
}

constexpr double kManySteps = 1e15;  // a count has fewer, and a double counts them exactly

std::string of_metric(std::size_t metric) { return str("metric/", metric, "/"); }

// "accuracy (N8lockstep...E)": two of one name may count something else.
std::string kind_of(const TrackedMetric& tracked) {
  const auto& rule = tracked.metric.rule();
  return str(tracked.name, " (", typeid(rule).name(), ")");
}

std::string name_of_kind(const std::string& kind) { return kind.substr(0, kind.rfind(" (")); }

std::string names_of_kinds(const std::vector<std::string>& kinds) {
  std::vector<std::string> names;
  for (const auto& kind : kinds) names.push_back(name_of_kind(kind));
  return join(", ", names);
}

// By its kind, and which of that kind it is: others may come and go between two runs.
std::vector<std::pair<std::string, std::shared_ptr<Callback>>> named(const Callbacks& callbacks) {
  std::vector<std::pair<std::string, std::shared_ptr<Callback>>> all;
  std::map<std::string, int> counts;
  for (const auto& callback : callbacks) {
    const auto& one = *callback;
    const std::string kind = typeid(one).name();
    all.emplace_back(str("callback/", kind, "-", counts[kind]++, "/"), callback);
  }
  return all;
}

}  // namespace

// Whose position the iterator's is: this process's alone, or one among those of the job's workers.
const Checkpoint::State& FitLoop::job() {
  if (job_ == nullptr) job_ = std::make_shared<Checkpoint::State>();
  if (workers_ != nullptr) job_->replicas = replicas_of(model_).shared_from_this();
  return *job_;
}

CheckpointPart FitLoop::save() {
  CheckpointPart part;
  const bool is_between = is_between_epochs_;
  put(part, "epoch", progress_.epoch + (is_between ? 1 : 0));
  put(part, "step", is_between ? 0.0 : static_cast<double>(progress_.step));
  put(part, "examples", is_between ? 0.0 : static_cast<double>(progress_.examples));
  put(part, "iterations", static_cast<double>(progress_.iterations));
  put(part, "is_stopping", is_any(training_.is_stopping()) ? 1 : 0);
  if (runner_.loss_scale().is_on()) {
    put(part, "loss_scale", runner_.loss_scale().value());
    put(part, "good_steps", static_cast<double>(runner_.loss_scale().good_steps()));
  }
  if (iterator_) put_all(part, "data/", iterator_part(job(), *iterator_)->save());
  if (hosted_) save_hosted(part);
  if (!is_between) {
    const auto sums = runner_.loss_sums_of_all();
    for (std::size_t k = 0; k < sums.size(); ++k) put(part, str("loss/", k), sums[k]);
    for (std::size_t m = 0; m < runner_.metrics().size(); ++m) {
      part.values[of_metric(m) + "kind"] = kind_of(runner_.metrics()[m]);
      const auto state = runner_.metrics()[m].metric.state();
      for (std::size_t k = 0; k < state.size(); ++k) part.tensors.emplace_back(of_metric(m) + std::to_string(k), state[k]);
    }
  }
  for (const auto& [name, callback] : named(callbacks_)) put_all(part, name, callback->save());
  return part;
}

// See Note [resuming a fit on workers].
void FitLoop::save_hosted(CheckpointPart& part) {
  hosted_->sums().show(runner_);
  CheckpointPart places;
  hosted_->save(places, is_between_epochs_);
  put_all(part, "hosted/", places);
  const auto& link = *model_.state().hosted;
  if (!link.has_schedule()) put(part, "learning_rate", link.rate);
}

void FitLoop::restore_hosted(const CheckpointPart& part) {
  hosted_->restore(take_all(part, "hosted/"));
  runner_.set_updates_elsewhere(progress_.iterations);
  hosted_->sums().take(runner_);
  auto& link = *model_.state().hosted;
  if (!link.has_schedule() && part.values.contains("learning_rate")) link.change_learning_rate(get(part, "learning_rate"));
}

std::vector<std::string> FitLoop::problems(const CheckpointPart& part) {
  std::vector<std::string> problems;
  for (const char* name : {"epoch", "step", "examples", "iterations", "is_stopping"})
    if (const auto value = part.values.find(name); value == part.values.end()) problems.push_back(str(name, ": missing"));
    else if (const auto count = whole_number<double>(value->second); !count || !(*count >= 0 && *count < kManySteps))
      problems.push_back(str(name, ": is '", value->second, "', which counts nothing"));
  const auto position = take_all(part, "data/");
  if (hosted_ && !position.values.empty())
    problems.emplace_back("data: its place was saved by a fit() without parameter servers; begin in another folder");
  else if (!hosted_ && !position.values.empty())
    for (const auto& problem : position_problems(job(), position)) problems.push_back("data/" + problem);
  if (const auto step = part.values.find("step"); step != part.values.end() && step->second != "0")
    for (auto& problem : sum_problems(part)) problems.push_back(std::move(problem));
  return problems;
}

// What was added up in an epoch goes on only in what adds the same.
std::vector<std::string> FitLoop::sum_problems(const CheckpointPart& part) {
  std::vector<std::string> problems, saved, mine;
  std::size_t losses = 0;
  while (part.values.contains(str("loss/", losses))) ++losses;
  if (const auto here = runner_.loss_sums().size(); losses != here)
    problems.push_back(
        str("losses: ", losses, " sums were saved in the middle of an epoch, and the model was compiled for ", here));
  for (auto found = part.values.find(of_metric(0) + "kind"); found != part.values.end();
       found = part.values.find(of_metric(saved.size()) + "kind"))
    saved.push_back(found->second);
  for (const auto& tracked : runner_.metrics()) mine.push_back(kind_of(tracked));
  if (saved != mine) {
    const bool are_names_equal = std::ranges::equal(saved, mine, {}, name_of_kind, name_of_kind);
    const auto listed = [&](const auto& all) { return str("[", are_names_equal ? join(", ", all) : names_of_kinds(all), "]"); };
    problems.push_back(str("metrics: ", listed(saved),
                           " were saved in the middle of an epoch, and the model was compiled with ", listed(mine),
                           "; compile the same ones, or begin in another folder"));
  }
  return problems;
}

void FitLoop::restore(const CheckpointPart& part) {
  progress_.epoch = static_cast<int>(get(part, "epoch"));
  progress_.step = static_cast<std::int64_t>(get(part, "step"));
  progress_.examples = static_cast<std::int64_t>(get(part, "examples"));
  progress_.iterations = static_cast<std::int64_t>(get(part, "iterations"));
  if (get(part, "is_stopping") != 0) training_.stop();
  if (part.values.contains("loss_scale"))
    runner_.loss_scale().set(get(part, "loss_scale"), static_cast<std::int64_t>(get(part, "good_steps")));
  runner_.reset();
  if (const auto position = take_all(part, "data/"); !position.values.empty()) {
    iterator_.emplace(data_->make_iterator());
    iterator_part(job(), *iterator_)->restore(position);
  }
  is_resumed_ = progress_.step > 0;
  if (is_resumed_) restore_sums(part);
  if (hosted_) restore_hosted(part);
  for (const auto& [name, callback] : named(callbacks_)) {
    const auto saved = take_all(part, name);
    if (!saved.tensors.empty() || !saved.values.empty()) callback->restore(saved);
  }
}

void FitLoop::restore_sums(const CheckpointPart& part) {
  std::vector<double> sums;
  while (part.values.contains(str("loss/", sums.size()))) sums.push_back(get(part, str("loss/", sums.size())));
  // The first worker has what all had.
  if (sums.size() == runner_.loss_sums().size() && progress_.is_chief) runner_.set_loss_sums(sums);
  for (std::size_t m = 0; m < runner_.metrics().size(); ++m) {
    std::vector<at::Tensor> state;
    const auto saved = take_all(part, of_metric(m));
    while (const auto* tensor = saved.find(std::to_string(state.size()))) state.push_back(tensor->clone());
    if (!state.empty()) runner_.metrics()[m].metric.set_state(state);
  }
}

}  // namespace lockstep::internal

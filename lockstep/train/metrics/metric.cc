#include "lockstep/train/metrics/metric.h"

#include <ATen/ATen.h>
#include <c10/core/GradMode.h>

#include <atomic>
#include <sstream>

#include "lockstep/base/error.h"
#include "lockstep/base/str.h"
#include "lockstep/collective/reduce_values.h"
#include "lockstep/collective/worker_group.h"
#include "lockstep/replica/mode.h"
#include "lockstep/replica/replica_context.h"
#include "lockstep/train/losses/loss_text.h"
#include "lockstep/train/metrics/mean.h"
#include "lockstep/train/metrics/metric_text.h"
#include "lockstep/train/metrics/names.h"

namespace lockstep::metrics {
namespace {

using Tensors = std::vector<at::Tensor>;

// One replica's part. Lines of their own: replicas write their parts at the same time.
struct alignas(64) Place {
  Tensors tensors;  // empty: nothing was counted
};

// The parts of a strategy's replicas in this process; [r] used only by replica r while run() goes on.
struct Places {
  explicit Places(std::shared_ptr<ReplicaSet> set)
      : replicas(std::move(set)), parts(static_cast<std::size_t>(replicas->size())) {}

  std::shared_ptr<ReplicaSet> replicas;
  std::vector<Place> parts;
};

// Refuses what is not one value for each example; a single one, of the whole batch, counts as one example.
losses::Loss::Function checked(const std::string& name, losses::Loss::Function function) {
  if (function == nullptr) return function;
  return [name, function = std::move(function)](const at::Tensor& y_true, const at::Tensor& y_pred) {
    auto values = function(y_true, y_pred);
    if (!values.defined() || values.dim() == 0 || y_pred.dim() == 0 || values.size(0) == y_pred.size(0)) return values;
    throw Error(ErrorCode::kInvalidArgument, lockstep::str("the metric '", name, "' gave shape ", values.sizes(), " for ",
                                                           y_pred.size(0), " examples; it must give one value for each"));
  };
}

// The mode of a replica of a strategy; nothing elsewhere.
std::optional<internal::Mode> replica_mode() {
  const auto mode = internal::current_mode();
  if (mode.context == nullptr || mode.replicas == &internal::default_replicas()) return std::nullopt;
  return mode;
}

Tensors zeros_like(const Tensors& tensors) {
  Tensors zeros;
  for (const auto& tensor : tensors) zeros.push_back(at::zeros_like(tensor));
  return zeros;
}

// Dtypes and shapes as text, for workers that have counted nothing.
std::string describe(const Tensors& tensors) {
  std::ostringstream out;
  for (const auto& tensor : tensors) {
    out << static_cast<int>(tensor.scalar_type()) << ' ' << tensor.dim() << ' ';
    for (const auto size : tensor.sizes()) out << size << ' ';
  }
  return out.str();
}

Tensors zeros_of(const std::string& description) {
  std::istringstream in(description);
  Tensors tensors;
  int dtype = 0;
  std::size_t dimensions = 0;
  while (in >> dtype >> dimensions) {
    std::vector<std::int64_t> sizes(dimensions);
    for (auto& size : sizes) in >> size;
    tensors.push_back(at::zeros(sizes, static_cast<at::ScalarType>(dtype)));
  }
  return tensors;
}

}  // namespace

struct Metric::State {
  State(std::string n, std::shared_ptr<const MetricRule> r)
      : name(std::move(n)), rule(std::move(r)), home(internal::strategy_replicas(internal::current_mode())) {
    if (rule == nullptr) throw Error(ErrorCode::kInvalidArgument, str("metric '", name, "': there is no rule"));
  }
  ~State() { delete places.load(); }
  State(const State&) = delete;
  State& operator=(const State&) = delete;

  // Where the calling thread counts.
  Tensors& here() {
    const auto mode = replica_mode();
    if (!mode) return outside.tensors;
    return places_for(*mode)->parts[static_cast<std::size_t>(mode->context->local_replica_id())].tensors;
  }

  // Made by the replica that comes first. Without a lock: replicas meet nowhere here.
  Places* places_for(const internal::Mode& mode) {
    Places* all = places.load(std::memory_order_acquire);
    if (all == nullptr) {
      auto mine = std::make_unique<Places>(internal::strategy_replicas(mode));
      if (places.compare_exchange_strong(all, mine.get(), std::memory_order_acq_rel)) all = mine.release();
    }
    if (all->replicas.get() != mode.replicas)
      throw Error(ErrorCode::kFailedPrecondition, str("metric '", name,
                                                      "' counts for the replicas of another strategy; read it and call "
                                                      "reset_state() outside run() first, or make one for each"));
    return all;
  }

  // Const after construction.
  const std::string name;
  const std::shared_ptr<const MetricRule> rule;
  const std::shared_ptr<ReplicaSet> home;  // the strategy in whose scope it was made; null: none
  Description description = nullptr;       // null: text cannot describe it

  // Used only outside run().
  Place outside;

  // Own synchronisation; replaced only outside run().
  std::atomic<Places*> places{nullptr};
};

Metric::Metric(const char* name) : Metric(std::string(name)) {}
Metric::Metric(const std::string& name) : Metric(name, rule_by_name(name)) { state_->description = metric_text(name); }
Metric::Metric(std::string name, std::shared_ptr<const MetricRule> rule)
    : state_(std::make_shared<State>(std::move(name), std::move(rule))) {}
Metric::Metric(std::string name, losses::Loss::Function function)
    : Metric(name, mean_of(losses::Loss(name, checked(name, std::move(function))), Direction::kUnknown)) {}
Metric::Metric(const losses::Loss& loss) : Metric(loss.name(), mean_of(loss, Direction::kDown)) {
  state_->description = metric_text(loss);
}

const std::string& Metric::name() const noexcept { return state_->name; }
const std::shared_ptr<const MetricRule>& Metric::shared_rule() const noexcept { return state_->rule; }
Metric Metric::renamed(std::string name) const { return Metric(std::move(name), state_->rule).described(state_->description); }

Metric Metric::described(Description description) const {
  Metric same(state_->name, state_->rule);
  same.state_->description = std::move(description);
  return same;
}

std::string Metric::to_text() const {
  if (state_->description == nullptr)
    throw Error(ErrorCode::kUnimplemented,
                str("metric '", name(),
                    "' is of a rule of one's own, or of a function that captures something, which cannot be sent to another "
                    "task; make it of a lambda without captures, or use one of lockstep/train/metrics/metrics.h"));
  return losses::text_with(state_->description(), "name", name());
}

void Metric::update_state(const at::Tensor& first, const at::Tensor& second, const at::Tensor& third) {
  if (const auto mode = replica_mode(); mode && mode->replicas->recording() != nullptr)
    throw Error(ErrorCode::kUnimplemented, str("what the metric '", name(), "' counts cannot be recorded; count the results"));
  const c10::NoGradGuard no_grad;
  const bool is_of_values = state_->rule->is_of_values();
  const MetricBatch batch = is_of_values ? MetricBatch{{}, first, second} : MetricBatch{first, second, third};
  if (!batch.y_pred.defined() || batch.y_true.defined() == is_of_values || (is_of_values && third.defined()))
    throw Error(ErrorCode::kInvalidArgument,
                str("metric '", name(), "': update_state() takes ",
                    is_of_values ? "values and, if they are to be weighed, sample_weight"
                                 : "y_true, y_pred and, if examples are to be weighed, sample_weight"));
  auto& tensors = state_->here();
  if (tensors.empty()) tensors = state_->rule->zeros(batch.y_true, batch.y_pred);
  if (!tensors.empty() && tensors[0].device() != batch.y_pred.device())  // what was set or reset elsewhere
    for (auto& tensor : tensors) tensor = tensor.to(batch.y_pred.device());
  if (batch.y_pred.numel() > 0) state_->rule->add(tensors, batch);
}

at::Tensor Metric::result_of(const std::vector<at::Tensor>& state) const {
  if (!state.empty()) return state_->rule->result(state);
  throw Error(
      ErrorCode::kFailedPrecondition,
      str("metric '", name(), "' has counted nothing yet, and its result depends on the data; call update_state() first"));
}

at::Tensor Metric::result() const {
  const c10::NoGradGuard no_grad;
  return replica_mode() ? local_result() : result_of(sum(/*over_workers=*/true));
}

at::Tensor Metric::local_result() const {
  const c10::NoGradGuard no_grad;
  if (!replica_mode()) return result_of(sum(/*over_workers=*/false));
  const auto& mine = state_->here();
  return result_of(mine.empty() ? state_->rule->zeros({}, {}) : mine);
}

void Metric::reset_state() {
  const c10::NoGradGuard no_grad;
  if (replica_mode()) {
    for (auto& tensor : state_->here()) tensor.zero_();
    return;
  }
  // The shapes stay known: a result without new data is that of zeros.
  auto& outside = state_->outside.tensors;
  if (const Places* all = state_->places.load(); all != nullptr && outside.empty())
    for (const auto& part : all->parts)
      if (!part.tensors.empty()) outside = part.tensors;
  outside = zeros_like(outside);
  delete state_->places.exchange(nullptr);
}

std::vector<at::Tensor> Metric::state() const {
  const c10::NoGradGuard no_grad;
  return sum(/*over_workers=*/true);
}

void Metric::set_state(const std::vector<at::Tensor>& state) {
  const c10::NoGradGuard no_grad;
  if (replica_mode())
    throw Error(ErrorCode::kFailedPrecondition, str("metric '", name(), "': set_state() inside run(); call it outside"));
  const auto wanted = state_->outside.tensors.empty() ? state_->rule->zeros({}, {}) : state_->outside.tensors;
  if (!wanted.empty() && !state.empty() && describe(wanted) != describe(state))
    throw Error(ErrorCode::kInvalidArgument,
                str("metric '", name(), "': the state to be set (dtypes, dimensions, sizes: ", describe(state),
                    ") is not of its kind (", describe(wanted), "); it must come from the same metric"));
  reset_state();
  const auto replicas = state_->home != nullptr ? state_->home : internal::strategy_replicas(internal::current_mode());
  const bool has_first = replicas == nullptr || replicas->first_replica() == 0;
  auto& outside = state_->outside.tensors;
  outside.clear();
  for (const auto& tensor : state) outside.push_back(has_first ? tensor.detach().clone() : at::zeros_like(tensor));
}

std::vector<at::Tensor> Metric::replica_state(std::size_t replica) const {
  const Places* all = state_->places.load();
  return all == nullptr || replica >= all->parts.size() ? Tensors() : all->parts[replica].tensors;
}

std::vector<at::Tensor> Metric::sum(bool over_workers) const {
  const Places* all = state_->places.load();
  auto replicas = all != nullptr ? all->replicas : state_->home;
  if (replicas == nullptr) replicas = internal::strategy_replicas(internal::current_mode());
  WorkerGroup* const workers = over_workers && replicas != nullptr ? replicas->workers() : nullptr;

  std::vector<Tensors> parts(replicas == nullptr ? 1 : static_cast<std::size_t>(replicas->size()));
  if (all != nullptr)
    for (std::size_t r = 0; r < parts.size(); ++r) parts[r] = all->parts[r].tensors;
  const auto& outside = state_->outside.tensors;
  if (parts[0].empty()) parts[0] = outside;
  else
    for (std::size_t k = 0; k < outside.size(); ++k) parts[0][k] = parts[0][k] + outside[k].to(parts[0][k].device());

  auto zeros = state_->rule->zeros({}, {});
  const bool depends_on_data = zeros.empty();
  for (const auto& part : parts)
    if (!part.empty()) zeros = part;
  const auto text = str("a read of metric '", name(), "'");
  if (workers != nullptr && depends_on_data)  // a worker that has counted nothing learns the shapes
    for (const auto& theirs : workers->exchange(text.c_str(), describe(zeros)))
      if (zeros.empty()) zeros = zeros_of(theirs);
  if (zeros.empty()) return {};
  for (auto& part : parts)
    if (part.empty()) part = zeros_like(zeros);

  if (workers != nullptr) {
    auto sums = zeros_like(parts[0]);
    workers->sum(text.c_str(), parts, sums);
    return sums;
  }
  Tensors sums;
  for (std::size_t k = 0; k < zeros.size(); ++k) {
    Tensors values;
    for (const auto& part : parts) values.push_back(part[k]);
    sums.push_back(sum_values(values).clone());
  }
  return sums;
}

}  // namespace lockstep::metrics

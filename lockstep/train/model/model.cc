#include "lockstep/train/model/model.h"

#include <torch/torch.h>

#include <iomanip>
#include <sstream>

#include "lockstep/base/str.h"
#include "lockstep/checkpoint/weights.h"
#include "lockstep/data/made_ahead.h"
#include "lockstep/data/rebatch_plan.h"
#include "lockstep/data/rows.h"
#include "lockstep/replica/replica_context.h"
#include "lockstep/strategy/default_strategy.h"
#include "lockstep/strategy/strategy.h"
#include "lockstep/train/model/fit_loop.h"
#include "lockstep/train/model/hosted_weights.h"
#include "lockstep/train/model/model_state.h"

namespace lockstep {
namespace {

// Every parameter and buffer of a module by name, not copied.
NamedTensors named_tensors(const torch::nn::Module& module) {
  NamedTensors tensors;
  for (const auto& list : {module.named_parameters(), module.named_buffers()})
    for (const auto& item : list)
      if (item.value().defined()) tensors.emplace_back(item.key(), item.value());
  return tensors;
}

// Of one batch, on a worker.
Logs hosted_logs(Model::State& state, const data::Element& batch, bool is_training) {
  const auto counts = internal::run_on_batch(*state.hosted, batch, is_training);
  internal::HostedSums sums;
  sums.add(counts);
  sums.show(*state.runner);
  if (is_training) state.runner->note_update_elsewhere(counts.mean_loss());
  return state.runner->logs();
}

}  // namespace

Model::Model(std::shared_ptr<ModuleReplicas> module, internal::Forward forward)
    : state_(std::make_unique<State>(State{std::move(module), std::move(forward)})) {}
Model::Model(std::unique_ptr<internal::HostedLink> link, const std::shared_ptr<torch::nn::Module>& module,
             const MakeForward& forward) {
  auto replicas = internal::coordinators_copy(*link->strategy, module);
  auto own = forward(replicas);
  state_ = std::make_unique<State>(State{std::move(replicas), std::move(own), std::move(link)});
}
Model::~Model() = default;
Model::Model(Model&&) noexcept = default;
Model& Model::operator=(Model&&) noexcept = default;

void Model::compile(CompileOptions options) {
  internal::require_idle(*this, "compile");
  // In the scope of the module's strategy, whatever the caller's is.
  std::optional<Scope> scope;
  if (state_->module->replicas() != nullptr) scope.emplace(strategy().scope());
  internal::require_complete(options, *state_->module);
  internal::StepRunner::Push elsewhere;
  if (state_->hosted != nullptr) {
    internal::compile_hosted(*state_->hosted, options, *state_->module->here());
    elsewhere = [] { throw Error(ErrorCode::kInternal, "a step of a hosted model ran on the coordinator"); };
  }
  state_->runner =
      std::make_unique<internal::StepRunner>(state_->module, state_->forward, std::move(options), std::move(elsewhere));
}

History Model::fit(const ModelData& data, const FitOptions& options) {
  if (options.validation_split != 0)
    throw Error(
        ErrorCode::kInvalidArgument,
        "fit: validation_split needs tensors, whose rows can be counted; give validation_data, or take() and skip() the "
        "dataset");
  return internal::FitLoop(*this, options).run(data);
}

History Model::fit(const at::Tensor& x, const at::Tensor& y, const FitOptions& options) {
  if (!x.defined() || !y.defined())
    throw Error(ErrorCode::kInvalidArgument, "fit: x or y is an undefined tensor; give one row for each example");
  if (x.dim() == 0 || y.dim() == 0 || x.size(0) != y.size(0))
    throw Error(ErrorCode::kInvalidArgument, lockstep::str("fit: x has shape ", x.sizes(), " and y ", y.sizes(),
                                                           "; both need the same number of rows, one for each example"));
  if (!(options.validation_split >= 0 && options.validation_split < 1))
    throw Error(ErrorCode::kInvalidArgument,
                str("fit: validation_split is ", options.validation_split, "; it is a part of the rows, from 0 to below 1"));
  auto rest = options;
  rest.validation_split = 0;
  const bool is_split = options.validation_split > 0 && !options.validation_data;
  const auto kept =
      is_split ? static_cast<std::int64_t>(static_cast<double>(x.size(0)) * (1 - options.validation_split)) : x.size(0);
  if (is_split && (kept == 0 || kept == x.size(0)))
    throw Error(ErrorCode::kInvalidArgument,
                str("fit: ", x.size(0), " rows cannot be divided by validation_split ", options.validation_split,
                    ": one of the parts would have none; give more rows, or another part"));
  if (is_split)
    rest.validation_data = internal::data_of(
        *this, {{x.narrow(0, kept, x.size(0) - kept), y.narrow(0, kept, x.size(0) - kept)}, options.batch_size, false});
  return fit(internal::data_of(*this, {{x.narrow(0, 0, kept), y.narrow(0, 0, kept)}, options.batch_size, options.shuffle}),
             rest);
}

Logs Model::train_on_batch(const data::Element& batch) {
  internal::require_idle(*this, "train_on_batch");
  auto& runner = internal::runner_of(*this, "train_on_batch");
  if (state_->hosted != nullptr) return hosted_logs(*state_, batch, true);
  runner.reset();
  runner.set_mode(true);
  const auto parts = internal::split(internal::replicas_of(*this), batch);
  runner.train(parts, batch[0].size(0));
  return runner.logs();
}

Logs Model::test_on_batch(const data::Element& batch) {
  auto& runner = internal::runner_of(*this, "test_on_batch");
  if (state_->hosted != nullptr) return hosted_logs(*state_, batch, false);
  const internal::EvaluationScope scope(*this);
  runner.reset();
  const auto parts = internal::split(internal::replicas_of(*this), batch);
  runner.test(parts, batch[0].size(0));
  return runner.logs();
}

CheckpointPart Model::weights() const {
  internal::pull_hosted(*this);
  const c10::NoGradGuard no_grad;
  CheckpointPart part;
  for (const auto& [name, tensor] : named_tensors(*state_->module->here()))
    part.tensors.emplace_back(name, tensor.detach().to(at::kCPU, tensor.scalar_type(), false, /*copy=*/true));
  for (const auto& [name, table] : internal::tables_of(*this, "weights")) part.tensors.emplace_back(name, table.value());
  return part;
}

void Model::set_weights(const CheckpointPart& weights) {
  if (auto tables = internal::tables_of(*this, "set_weights"); !tables.empty()) {
    internal::WeightsWithTables("set_weights", weights, state_->module, std::move(tables)).load();
    return internal::assign_hosted(*this);
  }
  const auto module = state_->module->here();
  const auto tensors = named_tensors(*module);
  if (const auto problems = compare_tensors(tensors, weights); !problems.empty())
    throw Error(ErrorCode::kInvalidArgument, str("set_weights: these are not weights of ", state_->module->name(), ": ",
                                                 join("; ", problems), "; nothing was changed"));
  const c10::NoGradGuard no_grad;
  for (auto [name, tensor] : tensors) tensor.copy_(*weights.find(name));
  internal::assign_hosted(*this);
}

void Model::save_weights(const std::string& path) const {
  internal::pull_hosted(*this);
  internal::write_weights(*this, path, {});
}

void Model::load_weights(const std::string& path) {
  if (auto tables = internal::tables_of(*this, "load_weights"); !tables.empty())
    internal::WeightsWithTables(str("load_weights('", path, "')"), {lockstep::load_weights(path).tensors, {}}, state_->module,
                                std::move(tables))
        .load();
  else load_weights_into(*state_->module, path);
  internal::assign_hosted(*this);
}

double Model::last_loss() const { return internal::runner_of(*this, "last_loss").last_loss(); }
std::int64_t Model::iterations() const { return internal::runner_of(*this, "iterations").iterations(); }
Optimizer& Model::optimizer() { return internal::runner_of(*this, "optimizer").optimizer(); }
const std::shared_ptr<ModuleReplicas>& Model::module() const { return state_->module; }
bool Model::is_compiled() const noexcept { return state_->runner != nullptr; }

Strategy& Model::strategy() const {
  auto* replicas = state_->module->replicas();
  if (replicas == nullptr) return default_strategy();
  if (replicas->strategy() == nullptr)
    throw Error(ErrorCode::kFailedPrecondition, "the model's strategy is gone; keep the strategy as long as the model is used");
  return *replicas->strategy();
}

std::string Model::summary() const {
  const auto module = state_->module->here();
  std::ostringstream out;
  std::int64_t all = 0, trainable = 0, buffers = 0;
  out << std::left << std::setw(28) << "part" << std::setw(22) << "kind"
      << "parameters\n";
  for (const auto& item : module->named_modules(module->name())) {
    std::int64_t own = 0;
    for (const auto& parameter : item.value()->named_parameters(/*recurse=*/false)) own += parameter.value().numel();
    auto kind = item.value()->name();
    if (kind.starts_with("torch::nn::")) kind = kind.substr(11);
    out << std::setw(28) << item.key() << std::setw(22) << kind << own << "\n";
  }
  for (const auto& parameter : module->parameters()) {
    all += parameter.numel();
    if (parameter.requires_grad()) trainable += parameter.numel();
  }
  for (const auto& buffer : module->buffers()) buffers += buffer.numel();
  out << "parameters: " << all << ", of which trained: " << trainable << "; buffers: " << buffers << " values\n";
  return out.str();
}

namespace internal {

EvaluationScope::EvaluationScope(Model& model) : state_(model.state()), was_training_(state_.module->here()->is_training()) {
  if (state_.is_in_epoch && state_.runner != nullptr) kept_ = state_.runner->keep();
  set_mode(false);
}

EvaluationScope::~EvaluationScope() {
  set_mode(was_training_);
  if (kept_) state_.runner->bring_back(std::move(*kept_));
}

void EvaluationScope::set_mode(bool is_training) {
  if (state_.runner != nullptr) state_.runner->set_mode(is_training);
  else state_.module->train(is_training);
}

StepRunner& runner_of(const Model& model, const char* what) {
  if (model.state().runner == nullptr)
    throw Error(ErrorCode::kFailedPrecondition,
                str(what, ": the model is not compiled; call compile({.optimizer = ..., .loss = ...}) first"));
  return *model.state().runner;
}

void require_idle(const Model& model, const char* what) {
  if (model.state().is_fitting)
    throw Error(ErrorCode::kFailedPrecondition, str(what, ": fit() of this model is under way; call it before or after"));
}

// Before compile() there are no variables on the servers: they begin with what the coordinator's copy has then.
void pull_hosted(const Model& model) {
  if (const auto& link = model.state().hosted; link != nullptr && link->optimizer) link->pull();
}

void assign_hosted(const Model& model) {
  if (const auto& link = model.state().hosted; link != nullptr && link->optimizer) link->assign();
}

NamedVariables tables_of(const Model& model, const char* what) {
  const auto& link = model.state().hosted;
  if (link == nullptr || !has_tables(*model.module()->here())) return {};
  if (!link->optimizer)
    throw Error(
        ErrorCode::kFailedPrecondition,
        str(what, ": the model has a HostedEmbedding, whose rows are made on the servers when it is compiled; compile first"));
  return link->tables();
}

void write_weights(const Model& model, const std::string& path, const std::map<std::string, std::string>& metadata) {
  if (const auto tables = tables_of(model, "save_weights"); !tables.empty())
    save_with_tables(path, model.module(), tables, metadata);
  else lockstep::save_weights(path, *model.module(), metadata);
}

ModelData data_of(const Model& model, const DatasetCreator::Rows& rows) {
  if (model.state().hosted != nullptr) return DatasetCreator(rows);
  return batches_of(rows.tensors, rows.batch_size, rows.is_shuffled);
}

double learning_rate_of(const Model& model) {
  auto& runner = runner_of(model, "learning_rate");
  const auto& link = model.state().hosted;
  return link == nullptr ? runner.optimizer().learning_rate() : link->learning_rate(runner.iterations());
}

void set_learning_rate_of(const Model& model, double rate) {
  if (const auto& link = model.state().hosted; link != nullptr) link->change_learning_rate(rate);
  else runner_of(model, "set_learning_rate").optimizer().set_learning_rate(rate);
}

ReplicaSet& replicas_of(const Model& model) { return model.strategy().replicas(); }

DistributedDataset distribute(Strategy& strategy, const ModelData& data, std::optional<AutoShardPolicy> policy) {
  if (data.distributed() != nullptr) return *data.distributed();
  if (data.creator() != nullptr && policy) return distribute(strategy, ModelData((*data.creator())(InputContext{})), policy);
  if (const auto* creator = data.creator())
    return strategy.distribute_datasets_from_function([own = *creator](const InputContext& context) { return own(context); },
                                                      creator->input_options());
  auto dataset = *data.dataset();
  if (policy) {
    auto options = dataset.options();
    options.auto_shard_policy = *policy;
    dataset = dataset.with_options(options);
  }
  return strategy.experimental_distribute_dataset(data::internal::made_ahead(dataset));
}

void require_finite(const DistributedDataset& data, const char* what, const char* advice) {
  if (data.cardinality() == data::kInfinite)
    throw Error(ErrorCode::kInvalidArgument, str(what, ": the data has no end (repeat()?); ", advice));
}

data::Dataset batches_of(const Tensors& tensors, std::int64_t batch_size, bool is_shuffled) {
  if (batch_size < 1)
    throw Error(ErrorCode::kInvalidArgument, str("batch_size is ", batch_size, "; it is the global batch, at least 1"));
  auto rows = data::Dataset::from_tensor_slices(data::Element(tensors));
  if (is_shuffled) rows = rows.shuffle(std::max<std::int64_t>(tensors[0].size(0), 1));
  return rows.batch(batch_size).with_options({.auto_shard_policy = AutoShardPolicy::kData});
}

DistributedIterator::Batch split(ReplicaSet& replicas, const data::Element& batch) {
  if (batch.empty() || batch[0].dim() == 0)
    throw Error(ErrorCode::kInvalidArgument,
                lockstep::str("a batch needs tensors with a row for each example; this is ", batch));
  const auto parts =
      data::internal::split_rows(batch, balanced_parts(data::internal::count_rows(batch), replicas.global_size()));
  std::vector<data::Element> mine;
  for (int replica = 0; replica < replicas.size(); ++replica) {
    auto part = parts[static_cast<std::size_t>(replicas.first_replica() + replica)];
    for (auto& component : part.components())
      if (!component.is_bytes()) component.tensor() = component.tensor().to(replicas.torch_device(replica));
    mine.push_back(std::move(part));
  }
  return DistributedIterator::Batch(std::move(mine));
}

}  // namespace internal
}  // namespace lockstep

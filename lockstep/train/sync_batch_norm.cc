#include "lockstep/train/sync_batch_norm.h"

#include <torch/library.h>
#include <torch/torch.h>

#include <mutex>
#include <shared_mutex>
#include <unordered_map>

#include "lockstep/base/error.h"
#include "lockstep/base/str.h"
#include "lockstep/replica/replica_context.h"

namespace lockstep {
namespace {

// Note [synchronised batch norms]
// A module's batch norm is a member of its class, which nothing can replace from outside. All of them call the operation
// aten::batch_norm, though, and replica threads run with a dispatch key of ours on top (Note [replica generators]): there the
// call is looked at. A batch norm whose parameters or statistics are registered is computed with everybody's; the rest goes on
// to LibTorch.
constexpr auto kKey = c10::DispatchKey::TESTING_ONLY_GenericMode;

// Weak pointers: an address stays taken as long as it stands here.
struct Registry {
  std::shared_mutex mu;
  std::unordered_map<const c10::TensorImpl*, c10::weak_intrusive_ptr<c10::TensorImpl>> tensors;  // guarded by mu

  bool has(const c10::IValue& value) {
    if (!value.isTensor() || !value.toTensor().defined()) return false;
    const std::shared_lock lock(mu);
    return tensors.contains(value.toTensor().unsafeGetTensorImpl());
  }
  void add(const at::Tensor& tensor) {
    if (!tensor.defined()) return;
    const std::unique_lock lock(mu);
    tensors.emplace(tensor.unsafeGetTensorImpl(), c10::weak_intrusive_ptr<c10::TensorImpl>(tensor.getIntrusivePtr()));
  }
};

Registry& registry() {
  static Registry registry;
  return registry;
}

struct Statistics {
  at::Tensor mean, variance;  // of the whole batch, biased
  double count = 0;           // values of a channel
};

std::vector<std::int64_t> all_but_channels(const at::Tensor& input) {
  std::vector<std::int64_t> dimensions = {0};
  for (std::int64_t d = 2; d < input.dim(); ++d) dimensions.push_back(d);
  return dimensions;
}

// Every replica's mean, squared deviations and count are brought together; from them come those of all, without the
// cancellation of a mean of squares.
Statistics whole_statistics(ReplicaContext& context, const at::Tensor& input) {
  const auto channels = input.size(1);
  const auto dimensions = all_but_channels(input);
  const auto count = static_cast<double>(input.numel() / std::max<std::int64_t>(channels, 1));
  const auto mean = count > 0 ? input.mean(dimensions) : input.sum(dimensions);
  auto shape = std::vector<std::int64_t>(static_cast<std::size_t>(input.dim()), 1);
  shape[1] = channels;
  const auto deviations = (input - mean.reshape(shape)).square().sum(dimensions);
  const auto mine = at::cat({mean, deviations, at::full({1}, count, mean.options().requires_grad(false))}).unsqueeze(0);
  const auto all = context.all_gather(mine, 0);
  const auto counts = all.select(1, 2 * channels).detach().unsqueeze(1);
  const auto means = all.narrow(1, 0, channels);
  const double total = counts.sum().item<double>();
  if (total == 0) return {mean, deviations, 0};
  Statistics result;
  result.count = total;
  result.mean = (means * counts).sum(0) / total;
  result.variance = (all.narrow(1, channels, channels) + (means - result.mean).square() * counts).sum(0) / total;
  return result;
}

void update_running(const at::Tensor& running, const at::Tensor& value, double momentum) {
  const c10::NoGradGuard no_grad;
  if (running.defined()) at::Tensor(running).mul_(1 - momentum).add_(value.detach().to(running.scalar_type()), momentum);
}

struct BatchNormArguments {
  at::Tensor input, weight, bias, running_mean, running_var;
  double momentum = 0.1, eps = 1e-5;
};

at::Tensor synchronized_batch_norm(ReplicaContext& context, const BatchNormArguments& given) {
  const auto dtype = given.input.scalar_type();
  const bool is_half = dtype == at::kHalf || dtype == at::kBFloat16;
  const auto input = is_half ? given.input.to(at::kFloat) : given.input;
  const auto statistics = whole_statistics(context, input);
  if (statistics.count > 0) {
    update_running(given.running_mean, statistics.mean, given.momentum);
    update_running(given.running_var, statistics.variance * (statistics.count / std::max(statistics.count - 1, 1.0)),
                   given.momentum);
  }
  std::vector<std::int64_t> shape(static_cast<std::size_t>(input.dim()), 1);
  shape[1] = input.size(1);
  auto scale = at::rsqrt(statistics.variance + given.eps);
  auto shift = -statistics.mean * scale;
  if (given.weight.defined()) {
    scale = scale * given.weight;
    shift = shift * given.weight;
  }
  if (given.bias.defined()) shift = shift + given.bias;
  const auto output = input * scale.reshape(shape) + shift.reshape(shape);
  return is_half ? output.to(dtype) : output;
}

at::Tensor tensor_or_none(const c10::IValue& value) { return value.isTensor() ? value.toTensor() : at::Tensor(); }

// The replica whose batch norms meet others'; null: there are none.
ReplicaContext* meeting_replica() {
  auto* context = get_replica_context();
  return context != nullptr && context->num_replicas_in_sync() > 1 ? context : nullptr;
}

// batch_norm(input, weight, bias, running_mean, running_var, training, momentum, eps, cudnn_enabled)
void batch_norm_kernel(const c10::OperatorHandle& op, torch::jit::Stack* stack) {
  const auto first = stack->size() - op.schema().arguments().size();
  const auto at = [&](std::size_t i) -> const c10::IValue& { return (*stack)[first + i]; };
  auto* context = meeting_replica();
  if (context == nullptr || !at(5).toBool() || !(registry().has(at(1)) || registry().has(at(3)))) {
    const c10::impl::ExcludeDispatchKeyGuard below(kKey);
    return op.callBoxed(stack);
  }
  auto output =
      synchronized_batch_norm(*context, {at(0).toTensor(), tensor_or_none(at(1)), tensor_or_none(at(2)), tensor_or_none(at(3)),
                                         tensor_or_none(at(4)), at(6).toDouble(), at(7).toDouble()});
  torch::jit::drop(*stack, op.schema().arguments().size());
  torch::jit::push(*stack, std::move(output));
}

void register_kernel() {
  static std::once_flag once;
  std::call_once(once, [] {
    static auto* aten = new torch::Library(torch::Library::IMPL, "aten", kKey, __FILE__, __LINE__);
    aten->impl("batch_norm", torch::CppFunction::makeFromBoxedFunction<&batch_norm_kernel>());
  });
}

// Registers the batch norm's own tensors, if it is one.
template <typename Norm>
bool add_if(const torch::nn::Module& module) {
  const auto* norm = dynamic_cast<const Norm*>(&module);
  if (norm == nullptr) return false;
  if (!norm->weight.defined() && !norm->running_mean.defined())
    throw Error(
        ErrorCode::kUnimplemented,
        "convert_sync_batch_norm: a batch norm has neither weights nor running statistics, by which it could be known; use "
        "SyncBatchNorm in its place");
  registry().add(norm->weight);
  registry().add(norm->running_mean);
  return true;
}

}  // namespace

SyncBatchNormImpl::SyncBatchNormImpl(const SyncBatchNormOptions& options) : options_(options) {
  if (options.num_features < 1)
    throw Error(ErrorCode::kInvalidArgument,
                str("SyncBatchNorm: num_features is ", options.num_features, "; it is the number of channels, at least 1"));
  reset();
}

void SyncBatchNormImpl::reset() {
  if (options_.affine) {
    weight = register_parameter("weight", torch::ones({options_.num_features}));
    bias = register_parameter("bias", torch::zeros({options_.num_features}));
  }
  if (options_.track_running_stats) {
    running_mean = register_buffer("running_mean", torch::zeros({options_.num_features}));
    running_var = register_buffer("running_var", torch::ones({options_.num_features}));
    num_batches_tracked = register_buffer("num_batches_tracked", torch::tensor(0, torch::dtype(torch::kLong)));
  }
}

void SyncBatchNormImpl::pretty_print(std::ostream& stream) const {
  stream << "lockstep::SyncBatchNorm(" << options_.num_features << ", eps=" << options_.eps
         << ", momentum=" << options_.momentum << ")";
}

at::Tensor SyncBatchNormImpl::forward(const at::Tensor& input) {
  if (input.dim() < 2 || input.size(1) != options_.num_features)
    throw Error(ErrorCode::kInvalidArgument, lockstep::str("SyncBatchNorm: the input has shape ", input.sizes(),
                                                           "; it must be [rows, ", options_.num_features, ", ...]"));
  const bool is_batch = is_training() || !running_mean.defined();
  if (is_training() && num_batches_tracked.defined()) num_batches_tracked.add_(1);
  auto* context = is_batch ? meeting_replica() : nullptr;
  if (context == nullptr)
    return at::batch_norm(input, weight, bias, running_mean, running_var, is_batch, options_.momentum, options_.eps, false);
  const auto running = is_training() ? running_mean : at::Tensor();
  return synchronized_batch_norm(
      *context, {input, weight, bias, running, is_training() ? running_var : at::Tensor(), options_.momentum, options_.eps});
}

namespace internal {

int sync_batch_norms(const ModuleReplicas& model) {
  register_kernel();
  int count = 0;
  for (std::size_t replica = 0; replica < model.size(); ++replica) {
    for (const auto& module : model.at(replica)->modules()) {
      const bool is_norm = add_if<torch::nn::BatchNorm1dImpl>(*module) || add_if<torch::nn::BatchNorm2dImpl>(*module) ||
                           add_if<torch::nn::BatchNorm3dImpl>(*module);
      if (is_norm && replica == 0) ++count;
    }
  }
  if (count == 0)
    throw Error(ErrorCode::kInvalidArgument,
                str("convert_sync_batch_norm: ", model.name(),
                    " has no BatchNorm1d, BatchNorm2d or BatchNorm3d among its registered modules"));
  return count;
}

bool has_sync_batch_norm(const ModuleReplicas& model) {
  for (const auto& module : model.at(0)->modules()) {
    if (dynamic_cast<const SyncBatchNormImpl*>(module.get()) != nullptr) return true;
    for (const auto& tensor : module->parameters(/*recurse=*/false))
      if (registry().has(tensor)) return true;
    for (const auto& tensor : module->buffers(/*recurse=*/false))
      if (registry().has(tensor)) return true;
  }
  return false;
}

}  // namespace internal
}  // namespace lockstep

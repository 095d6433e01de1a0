#include "lockstep/train/hosted.h"

#include <torch/torch.h>

#include <set>

#include "lockstep/base/error.h"
#include "lockstep/base/str.h"

namespace lockstep::internal {
namespace {

// Each tensor once, by its first name: what two layers share is one variable. Of two, the one without gradients would undo what
// the other has learned.
template <typename Named>
std::vector<std::pair<std::string, at::Tensor>> each_once(const Named& named) {
  std::vector<std::pair<std::string, at::Tensor>> tensors;
  std::set<const void*> seen;
  for (const auto& item : named)
    if (seen.insert(item.value().unsafeGetTensorImpl()).second) tensors.emplace_back(item.key(), item.value());
  return tensors;
}

std::vector<std::pair<std::string, std::shared_ptr<HostedEmbeddingImpl>>> embeddings_of(const torch::nn::Module& module) {
  std::vector<std::pair<std::string, std::shared_ptr<HostedEmbeddingImpl>>> all;
  std::set<const void*> seen;
  for (const auto& item : module.named_modules("", /*include_self=*/false))
    if (auto one = std::dynamic_pointer_cast<HostedEmbeddingImpl>(item.value());
        one != nullptr && one->is_hosted() && seen.insert(one.get()).second)
      all.emplace_back(item.key(), std::move(one));
  return all;
}

RemoteDescription described(const std::string& name, const at::Tensor& tensor, bool is_trainable) {
  return {name, tensor.sizes().vec(), tensor.scalar_type(), is_trainable};
}

PartInitializer rows_of(const at::Tensor& tensor) {
  return [value = tensor.detach().cpu().contiguous()](const std::vector<std::int64_t>& shape,
                                                      const std::vector<std::int64_t>& offset) {
    return shape.empty() ? value : value.narrow(0, offset[0], shape[0]);
  };
}

void require_same(std::size_t there, std::size_t here, const char* what) {
  if (there == here) return;
  throw Error(ErrorCode::kInvalidArgument,
              str("a hosted module has ", here, " ", what, " and its variables on the servers are of ", there,
                  "; it must be made alike on the coordinator and on workers"));
}

}  // namespace

HostedParts::Addresses HostedParts::create(const torch::nn::Module& module, ps::ServerVariables& servers,
                                           const std::string& rule) {
  Addresses addresses;
  for (const auto& [name, tensor] : each_once(module.named_parameters()))
    addresses.parameters.push_back(servers.create(described(name, tensor, true), {.rule = rule, .part = rows_of(tensor)}));
  for (const auto& [name, tensor] : each_once(module.named_buffers()))
    addresses.buffers.push_back(servers.create(described(name, tensor, false), {.part = rows_of(tensor)}));
  for (const auto& [name, one] : embeddings_of(module)) {
    const auto& options = one->options();
    addresses.embeddings.push_back(servers.create(
        {name + ".weight", {options.rows, options.columns}, at::kFloat, true},
        {.rule = rule, .initial = ps::Initial{ps::Initial::Kind::kNormal, 0, options.standard_deviation, options.seed}}));
  }
  return addresses;
}

void require_possible(const HostedUpdateOptions& options, std::size_t num_workers) {
  const auto gradients = options.gradients_per_step.value_or(1);
  if (gradients >= 1 && static_cast<std::size_t>(gradients) <= num_workers) return;
  throw Error(ErrorCode::kInvalidArgument,
              str("set_optimizer: gradients_per_step of ", gradients, "; with ", num_workers, " workers a step has 1 to ",
                  num_workers, " gradients, one of each. Leave it out to train asynchronously"));
}

HostedParts::HostedParts(std::shared_ptr<torch::nn::Module> module, std::shared_ptr<ps::ServerVariables> servers,
                         const Addresses& addresses, std::optional<int> worker)
    : module_(std::move(module)), servers_(std::move(servers)), is_worker_(worker.has_value()) {
  const auto replicas = servers_->replicas();
  const auto bind = [&](const auto& items, const std::vector<ps::VariableAddress>& where, const char* what) {
    require_same(where.size(), items.size(), what);
    Tensors bound;
    std::size_t i = 0;
    for (const auto& [name, tensor] : items) bound.emplace_back(servers_->find(where[i++], replicas), tensor);
    return bound;
  };
  parameters_ = bind(each_once(module_->named_parameters()), addresses.parameters, "parameters");
  buffers_ = bind(each_once(module_->named_buffers()), addresses.buffers, "buffers");
  const auto embeddings = embeddings_of(*module_);
  require_same(addresses.embeddings.size(), embeddings.size(), "hosted embeddings");
  for (std::size_t i = 0; i < embeddings.size(); ++i) {
    embeddings[i].second->set_table(servers_->find(addresses.embeddings[i], replicas), is_worker_);
    embeddings_.push_back(embeddings[i].second);
    tables_.emplace_back(embeddings[i].first + ".weight", *embeddings[i].second->table());
  }
  for (const auto* const group : {&addresses.parameters, &addresses.buffers, &addresses.embeddings})
    for (const auto& address : *group) names_.push_back(ps::stored_name(address));
  if (addresses.gradients_per_step == 0) return;
  ps::SyncOptions options{.gradients_per_step = addresses.gradients_per_step};
  for (const auto* const group : {&addresses.buffers, &addresses.embeddings, &addresses.parameters})
    if (!group->empty()) options.model = group->front().parts[0].name;
  if (worker) options.worker = static_cast<std::uint32_t>(*worker);
  steps_.emplace(servers_->client(), options);
}

std::vector<std::string> HostedParts::names() const { return names_; }

void HostedParts::pull() {
  const torch::NoGradGuard no_grad;
  if (steps_) is_worker_ ? steps_->begin() : steps_->settle();
  Tensors all;
  std::vector<at::Tensor> elsewhere;  // on a GPU, or with gaps: by way of another tensor
  for (const auto* const group : {&parameters_, &buffers_})
    for (const auto& [variable, tensor] : *group) {
      const bool is_plain = tensor.is_cpu() && tensor.is_contiguous();
      all.emplace_back(variable, is_plain ? tensor.detach() : torch::empty(tensor.sizes(), tensor.scalar_type()));
      elsewhere.push_back(is_plain ? at::Tensor() : tensor.detach());
    }
  servers_->pull(all);
  for (std::size_t i = 0; i < all.size(); ++i)
    if (elsewhere[i].defined()) elsewhere[i].copy_(all[i].second);
}

void HostedParts::assign(const torch::nn::Module& values) {
  const torch::NoGradGuard no_grad;
  Tensors all;
  const auto add = [&](const Tensors& bound, const auto& items, const char* what) {
    require_same(bound.size(), items.size(), what);
    std::size_t i = 0;
    for (const auto& [name, tensor] : items) all.emplace_back(bound[i++].first, tensor.detach());
  };
  add(parameters_, each_once(values.named_parameters()), "parameters");
  add(buffers_, each_once(values.named_buffers()), "buffers");
  servers_->push({}, all);
}

bool HostedParts::push() {
  const torch::NoGradGuard no_grad;
  Tensors gradients;
  for (auto& [variable, tensor] : parameters_) {
    if (!tensor.grad().defined()) continue;
    gradients.emplace_back(variable, tensor.grad());
    tensor.mutable_grad() = at::Tensor();
  }
  for (const auto& one : embeddings_)
    for (auto& gradient : one->take_gradients()) gradients.push_back(std::move(gradient));
  if (steps_ && is_worker_) return steps_->push(servers_->updates_of(gradients, buffers_));
  servers_->push(gradients, buffers_);
  return true;
}

void HostedParts::forget() {
  for (auto& [variable, tensor] : parameters_) tensor.mutable_grad() = at::Tensor();
  for (const auto& one : embeddings_) one->take_gradients();
}

void HostedParts::set_learning_rate(double rate) {
  std::vector<Variable> all;
  for (const auto& [variable, tensor] : parameters_) all.push_back(variable);
  for (const auto& one : embeddings_) all.push_back(*one->table());
  servers_->set_learning_rate(all, rate);
}

}  // namespace lockstep::internal

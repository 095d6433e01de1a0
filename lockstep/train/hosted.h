#pragma once

#include <torch/nn/module.h>

#include <cstdint>
#include <functional>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <tuple>
#include <utility>
#include <vector>

#include "lockstep/checkpoint/server_part.h"
#include "lockstep/ps/cluster_coordinator.h"
#include "lockstep/ps/server_variables.h"
#include "lockstep/ps/sync_worker.h"
#include "lockstep/strategy/parameter_server_strategy.h"
#include "lockstep/train/hosted_embedding.h"
#include "lockstep/train/optimizers/optimizer_spec.h"
#include "lockstep/variable/named_variables.h"

// Modules whose parameters live on parameter servers.
//
//   auto model = strategy.hosted<Net>(784, 10);               // on the coordinator
//   model.set_optimizer(ls::SGD(0.1));                        // on the servers
//   coordinator.schedule([](ls::Hosted<Net>& net, torch::Tensor x, torch::Tensor y) {
//     auto loss = torch::nll_loss(net->forward(x), y);        // the first use gets the servers' values
//     loss.backward();
//     net.push();                                             // the servers' optimizers use the gradients
//     return loss;
//   }, model, x, y);

namespace lockstep {

struct HostedUpdateOptions {
  // Absent: every push is an update at once, of whatever the values are by then (asynchronous). Otherwise synchronous: the
  // first so many gradients that come for a step are one update, of their mean; those that come later for this step are
  // dropped. From 1 to the number of workers: fewer than workers makes the others backups, so that the slowest are not waited
  // for; as many as workers uses every gradient. A worker that has given its gradient waits for the next step, in its first use
  // of the module; when nobody works on the step (a worker is lost, or there is nothing more to do) it gives another one.
  std::optional<int> gradients_per_step = std::nullopt;
};

namespace internal {

// A module's parameters, buffers and hosted embeddings, and where they are. In one process; used by one thread at a time.
class HostedParts {
 public:
  struct Addresses {
    std::vector<ps::VariableAddress> parameters;
    std::vector<ps::VariableAddress> buffers;
    std::vector<ps::VariableAddress> embeddings;
    std::uint32_t gradients_per_step = 0;  // 0: asynchronous
    template <typename Fields>
    void list(Fields& fields) {
      fields(parameters, buffers, embeddings, gradients_per_step);
    }
  };

  // Makes the module's variables on the servers, each parameter with this optimizer ("": none). Those that are there already,
  // of a coordinator before this one, stay as they are.
  static Addresses create(const torch::nn::Module& module, ps::ServerVariables& servers, const std::string& rule);

  // `worker`: whose copy it is; none: the coordinator's, which gives no gradients. Throws kInvalidArgument for addresses of
  // another module.
  HostedParts(std::shared_ptr<torch::nn::Module> module, std::shared_ptr<ps::ServerVariables> servers,
              const Addresses& addresses, std::optional<int> worker = std::nullopt);

  void pull();
  bool push();
  // Drops what a step that failed has left of gradients.
  void forget();
  void assign(const torch::nn::Module& values);
  void set_learning_rate(double rate);
  // On the servers: of whole variables.
  std::vector<std::string> names() const;
  // The tables of hosted embeddings, by the names that their weights would have in the module.
  NamedVariables tables() const { return tables_; }

 private:
  using Tensors = std::vector<std::pair<Variable, at::Tensor>>;

  // Const after construction.
  const std::shared_ptr<torch::nn::Module> module_;
  const std::shared_ptr<ps::ServerVariables> servers_;
  const bool is_worker_;
  Tensors parameters_;
  Tensors buffers_;
  std::vector<std::shared_ptr<HostedEmbeddingImpl>> embeddings_;
  std::vector<std::string> names_;
  NamedVariables tables_;

  // Used by one thread at a time.
  std::optional<ps::SyncWorker> steps_;  // when it is synchronous
};

// Throws kInvalidArgument for a number of gradients that no step can have.
void require_possible(const HostedUpdateOptions& options, std::size_t num_workers);

}  // namespace internal

// A worker's copy of a hosted module, as closures take it: `Hosted<Net>&`. On the CPU, as the tensors that closures are given,
// until it is moved; Model::fit moves it to the worker's first GPU (Note [devices of hosted modules]).
template <typename M>
class Hosted : public std::enable_shared_from_this<Hosted<M>> {
 public:
  Hosted(std::shared_ptr<M> module, std::shared_ptr<ps::ServerVariables> servers,
         const internal::HostedParts::Addresses& addresses, std::optional<int> worker = std::nullopt)
      : module_(module), parts_(module, std::move(servers), addresses, worker) {}

  // The module; its first use in a closure gets the servers' values. Hosted embeddings get their rows when they are used.
  M* operator->() {
    if (!std::exchange(is_pulled_, true)) parts_.pull();
    return module_.get();
  }
  M& operator*() { return *operator->(); }

  // Parameters and buffers as they are on the servers now.
  void pull() {
    parts_.pull();
    is_pulled_ = true;
  }
  // Sends the gradients, which the servers' optimizers use, and drops them here; and buffers, as they are here. False: they
  // were not used, because their step had all its gradients already (HostedUpdateOptions::gradients_per_step).
  bool push() {
    is_pulled_ = false;
    return parts_.push();
  }

  // Gradients of a step that failed are dropped.
  void forget() { parts_.forget(); }

  // The module as it is here, whatever the servers have.
  const std::shared_ptr<M>& module() const noexcept { return module_; }

  // A closure is about to use it. What an earlier one has left of gradients, because it failed or only looked, is not its.
  void begin_closure() {
    is_pulled_ = false;
    parts_.forget();
  }

 private:
  // Const after construction.
  const std::shared_ptr<M> module_;

  // Used only on the thread that runs closures.
  internal::HostedParts parts_;
  bool is_pulled_ = false;
};

// A hosted module as the coordinator has it: given to schedule() it becomes the worker's Hosted<M>. A handle.
template <typename M>
class HostedModel {
 public:
  using value_type = Hosted<M>;
  // How it is made on every worker, once the servers have its variables.
  using Make = std::function<PerWorkerValues<Hosted<M>>(const internal::HostedParts::Addresses&)>;

  HostedModel(std::shared_ptr<M> module, std::shared_ptr<ps::ServerVariables> servers, Make make, std::size_t num_workers)
      : state_(std::make_shared<State>()) {
    state_->module = std::move(module);
    state_->servers = std::move(servers);
    state_->make = std::move(make);
    state_->num_workers = num_workers;
  }

  // What the servers do with gradients. Before the model is used; kFailedPrecondition afterwards. kInvalidArgument for options
  // that cannot be.
  HostedModel& set_optimizer(const OptimizerSpec& optimizer, const HostedUpdateOptions& options = {}) {
    internal::require_possible(options, state_->num_workers);
    const std::lock_guard lock(state_->mu);
    if (state_->copies)
      throw Error(ErrorCode::kFailedPrecondition, "set_optimizer: the hosted model is in use; set it before its first closure");
    state_->rule = optimizer.to_text();
    state_->options = options;
    return *this;
  }
  void set_learning_rate(double rate) { parts().set_learning_rate(rate); }

  // The coordinator's own copy, with the servers' values as they are now: to evaluate, to save.
  std::shared_ptr<M> module() {
    parts().pull();
    return state_->module;
  }
  // The same as it is here, with the values of the last module().
  const std::shared_ptr<M>& local() const noexcept { return state_->module; }
  // The servers get these values, of the coordinator's copy: after weights were loaded into it.
  void assign(const M& module) { parts().assign(module); }
  // Of its variables on the servers.
  std::vector<std::string> variable_names() { return parts().names(); }
  // Those of its hosted embeddings, which module() does not get: "table.weight".
  NamedVariables tables() { return parts().tables(); }

  const std::shared_ptr<ps::ServerVariables>& servers() const noexcept { return state_->servers; }
  const std::shared_ptr<const ps::ResourceRecord>& record() const {
    const std::lock_guard lock(state_->mu);
    return state_->made().record();
  }

 private:
  struct State {
    // With mu held.
    const PerWorkerValues<Hosted<M>>& made() {
      if (!copies) {
        auto addresses = internal::HostedParts::create(*module, *servers, rule);
        addresses.gradients_per_step = static_cast<std::uint32_t>(options.gradients_per_step.value_or(0));
        parts.emplace(module, servers, addresses);
        copies = make(addresses);
      }
      return *copies;
    }

    // Const after construction.
    std::shared_ptr<M> module;
    std::shared_ptr<ps::ServerVariables> servers;
    Make make;
    std::size_t num_workers = 0;

    // Guarded by mu.
    std::mutex mu;
    std::string rule;
    HostedUpdateOptions options;
    std::optional<internal::HostedParts> parts;
    std::optional<PerWorkerValues<Hosted<M>>> copies;
  };

  internal::HostedParts& parts() {
    const std::lock_guard lock(state_->mu);
    state_->made();
    return *state_->parts;
  }

  std::shared_ptr<State> state_;
};

namespace ps {

template <typename M>
struct IsPerWorker<HostedModel<M>> : std::true_type {};

template <typename M>
struct ValueCodec<HostedModel<M>> {
  static void encode(const HostedModel<M>& model, Encoder& encoder) {
    encoder.put(model.record()->id);
    encoder.keep(model.record());
  }
};

template <>
struct ValueCodec<internal::HostedParts::Addresses> {
  static void encode(const internal::HostedParts::Addresses& addresses, Encoder& encoder) { encoder.put(to_bytes(addresses)); }
  static internal::HostedParts::Addresses decode(Decoder& decoder) {
    return from_bytes<internal::HostedParts::Addresses>(decoder.get<std::string>());
  }
};

}  // namespace ps

// A hosted model's variables, with their optimizers' states, for Checkpoint::track. Where they come back under the same name as
// a model of one process (`mirrored<Net>()`), they are its weights, and the other way round; see checkpoint/server_part.h.
template <typename M>
std::shared_ptr<Trackable> server_part(const ParameterServerStrategy& strategy, HostedModel<M>& model) {
  return server_part(strategy.connections(), model.variable_names());
}

template <typename M, typename... Args>
HostedModel<M> ParameterServerStrategy::hosted(const Args&... args) {
  const auto make = [](const Args&... given) {
    const internal::HostingScope hosting;
    return std::make_shared<M>(given...);
  };
  ClusterCoordinator coordinator(*this);
  const auto num_workers = coordinator.num_workers();
  return HostedModel<M>(
      make(args...), variables(),
      [coordinator, kept = std::tuple<Args...>(args...)](const internal::HostedParts::Addresses& addresses) mutable {
        return std::apply(
            [&](const Args&... given) {
              return coordinator.create_per_worker_resource(
                  [](WorkerContext& worker, const internal::HostedParts::Addresses& where, const Args&... own) {
                    const internal::HostingScope hosting;
                    auto module = std::make_shared<M>(own...);
                    return std::make_shared<Hosted<M>>(std::move(module), worker.find<ps::ServerVariables>(), where,
                                                       worker.worker_index());
                  },
                  addresses, given...);
            },
            kept);
      },
      num_workers);
}

}  // namespace lockstep

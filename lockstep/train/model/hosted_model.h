#pragma once

#include <memory>
#include <type_traits>

#include "lockstep/train/hosted.h"
#include "lockstep/train/model/hosted_link.h"
#include "lockstep/train/model/model.h"

// Model over a module on parameter servers:
//
//   int main() {
//     if (lockstep::run_role_if_server()) return 0;
//     lockstep::ParameterServerStrategy strategy;
//     lockstep::Model model(strategy.hosted<Net>());
//     model.compile({.optimizer = lockstep::SGD(0.1), .loss = "mse"});
//     model.fit(lockstep::DatasetCreator([](const lockstep::InputContext&) { return batches(); }),
//               {.epochs = 3, .steps_per_epoch = 1000});
//   }

namespace lockstep {

namespace internal {

// How the module is called: by its own forward(), or by a function of a type without state.
template <typename M, typename... F>
Forward forward_of_hosted(const MirroredModule<M>& module) {
  if constexpr (sizeof...(F) == 0) return forward_of(module);
  else return forward_with(module, F{}...);
}

// A worker's copy of an M.
template <typename M>
class HostedCopyOf : public HostedCopy {
 public:
  HostedCopyOf(std::shared_ptr<Hosted<M>> hosted, std::shared_ptr<ModuleReplicas> module, Forward forward)
      : HostedCopy(std::move(module), std::move(forward)), hosted_(std::move(hosted)) {}

  void pull() override { hosted_->pull(); }
  void push() override { hosted_->push(); }
  void forget() override { hosted_->forget(); }

 private:
  const std::shared_ptr<Hosted<M>> hosted_;
};

template <typename M, typename... F>
std::shared_ptr<HostedCopy> make_hosted_copy(Hosted<M>& hosted) {
  const MirroredModule<M> module(workers_copy(hosted.module()));
  return std::make_shared<HostedCopyOf<M>>(hosted.shared_from_this(), module.replicas(), forward_of_hosted<M, F...>(module));
}

ParameterServerStrategy& strategy_of(const ps::ServerVariables& servers);

template <typename M, typename... F>
std::unique_ptr<HostedLink> link_of(HostedModel<M> model) {
  auto& strategy = strategy_of(*model.servers());
  ClusterCoordinator coordinator(strategy);
  return std::make_unique<HostedLink>(
      HostedLink{.strategy = &strategy,
                 .coordinator = coordinator,
                 .set_optimizer = [model](const OptimizerSpec& optimizer) mutable { model.set_optimizer(optimizer); },
                 .set_learning_rate = [model](double rate) mutable { model.set_learning_rate(rate); },
                 .pull = [model]() mutable { model.module(); },
                 .assign = [model]() mutable { model.assign(*model.local()); },
                 .tables = [model]() mutable { return model.tables(); },
                 .part = [model, &strategy]() mutable { return server_part(strategy, model); },
                 .make_copies =
                     [model, coordinator]() mutable {
                       return coordinator.create_per_worker_resource(
                           [](Hosted<M>& hosted) { return make_hosted_copy<M, F...>(hosted); }, model);
                     }});
}

}  // namespace internal

template <typename M>
Model::Model(const HostedModel<M>& module)
    : Model(internal::link_of<M>(module), module.local(),
            [](const auto& replicas) { return internal::forward_of(MirroredModule<M>(replicas)); }) {}

template <typename M, typename F>
Model::Model(const HostedModel<M>& module, F)
    : Model(internal::link_of<M, F>(module), module.local(),
            [](const auto& replicas) { return internal::forward_with(MirroredModule<M>(replicas), F{}); }) {
  static_assert(std::is_empty_v<F> && std::is_default_constructible_v<F>,
                "a function that captures cannot run on workers: give a lambda without captures");
}

}  // namespace lockstep

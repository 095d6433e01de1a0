#pragma once

#include <memory>
#include <type_traits>
#include <utility>

#include "lockstep/variable/module_replicas.h"

namespace lockstep {

namespace internal {

// TORCH_MODULE(Net) makes a holder Net around NetImpl; both spellings mean the same module.
template <typename M, typename = void>
struct Contained {
  using type = M;
};
template <typename M>
struct Contained<M, std::void_t<typename M::ContainedType>> {
  using type = typename M::ContainedType;
};

}  // namespace internal

// A module mirrored over the replicas of a strategy. model->forward(x) inside run() reaches the current replica's copy,
// outside it replica 0's. A handle: copies name the same modules.
template <typename M>
class MirroredModule {
 public:
  explicit MirroredModule(std::shared_ptr<ModuleReplicas> replicas) : replicas_(std::move(replicas)) {}

  M* operator->() const { return static_cast_module(replicas_->here()); }
  M& operator*() const { return *static_cast_module(replicas_->here()); }
  // Replica r's copy.
  M& at(std::size_t replica) const { return *static_cast_module(replicas_->at(replica)); }
  std::size_t size() const noexcept { return replicas_->size(); }

  // Training or evaluation mode of all copies. (model->eval() reaches one copy only.)
  void train(bool on = true) const { replicas_->train(on); }
  void eval() const { replicas_->train(false); }

  // The current replica's copy as LibTorch's functions take it: torch::save(model.local(), "weights.pt"), and
  // auto local = model.local(); torch::load(local, "weights.pt") outside run(), which loads all copies.
  std::shared_ptr<M> local() const { return std::dynamic_pointer_cast<M>(replicas_->here()); }

  const std::shared_ptr<ModuleReplicas>& replicas() const noexcept { return replicas_; }

 private:
  static M* static_cast_module(const std::shared_ptr<torch::nn::Module>& module) {
    if constexpr (requires { static_cast<M*>(module.get()); }) return static_cast<M*>(module.get());
    else return dynamic_cast<M*>(module.get());  // LibTorch 1.13's own modules inherit virtually
  }

  std::shared_ptr<ModuleReplicas> replicas_;
};

// One Net(args...) for each replica of the current strategy, with equal weights. Net is any torch::nn::Module, as it
// is. Call it inside scope(); outside, it makes one plain module.
template <typename Net, typename... Args>
auto mirrored(const Args&... args) {
  using M = typename internal::Contained<Net>::type;
  return MirroredModule<M>(
      std::make_shared<ModuleReplicas>([&]() -> std::shared_ptr<torch::nn::Module> { return std::make_shared<M>(args...); }));
}

// The same for modules that need more than a constructor: `make` returns a std::shared_ptr<Module>, or a holder, and is
// called once a replica.
template <typename F>
requires std::is_invocable_v<F&>
auto mirrored_from(F make) {
  using M = std::remove_reference_t<decltype(*make())>;
  return MirroredModule<M>(std::make_shared<ModuleReplicas>([&]() -> std::shared_ptr<torch::nn::Module> {
    auto made = make();
    if constexpr (requires { made.ptr(); }) return made.ptr();
    else return made;
  }));
}

}  // namespace lockstep

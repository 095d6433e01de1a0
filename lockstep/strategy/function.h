#pragma once

#include <any>
#include <memory>
#include <optional>
#include <string>
#include <tuple>
#include <type_traits>
#include <typeinfo>
#include <utility>
#include <vector>

#include "lockstep/strategy/recorded_calls.h"
#include "lockstep/strategy/strategy.h"

namespace lockstep {

// A function of replicas: calling it is strategy.run(fn, args...). With FunctionOptions::is_recorded its work on a GPU is
// recorded, and then done again by one call of the host: what tf.function is to tf.distribute.
//
//   auto step = strategy.function([&](torch::Tensor x, torch::Tensor y) { ...; optimizer.step(); return loss; },
//                                 {.is_recorded = true});
//   for (auto batch : distributed) losses = step(batch);
//
// For each signature of the arguments (shapes, dtypes, and the values of what is no tensor) the first calls run as they are,
// then the step is recorded (Note [recorded steps]). From then on the function's own code on the host does not run: what it
// prints, counts or decides there happened once. Weights, fused optimizers, learning rates, random numbers and collectives of
// the replicas go on as in run(), with the same bits; docs/gpu.md says what is not followed. Results are detached.
// Where a step cannot be recorded (on the CPU; several workers; .item() in the function) each call is a run(), and the log says
// why, once; why_not() too. One call at a time. The strategy must live as long.
template <typename F>
class Function {
 public:
  Function(Strategy& strategy, F fn, const FunctionOptions& options)
      : strategy_(strategy), fn_(std::move(fn)), calls_(std::make_unique<internal::RecordedCalls>(strategy, options)) {}

  template <typename... Args>
  auto operator()(const Args&... args) {
    using Arguments = std::tuple<std::remove_cvref_t<decltype(select_replica(0, args))>...>;
    if constexpr (!(internal::has_signature_v<std::remove_cvref_t<decltype(select_replica(0, args))>> && ...) ||
                  !Returned<Arguments>::can_be_kept) {
      calls_->refuse("an argument or the result is of a type whose tensors and numbers are not known");
      return strategy_.run(fn_, args...);
    } else {
      if (!calls_->is_possible() || strategy_.replicas().is_running_here()) return strategy_.run(fn_, args...);
      std::vector<Arguments> own;
      for (int replica = 0; replica < strategy_.replicas().size(); ++replica) own.push_back({select_replica(replica, args)...});
      internal::SignatureOf signature(typeid(Arguments));
      for (auto& one : own) {
        signature.begin_replica();
        nest::for_each_leaf(one, signature);
      }
      auto* const recorded = calls_->find(signature);
      if (recorded == nullptr) return strategy_.run(fn_, args...);
      return recorded->is_recorded() ? replay<Arguments>(*recorded, signature) : record(*recorded, signature, own, args...);
    }
  }

  // Why the last call was not done from a recording; empty: it was.
  const std::string& why_not() const noexcept { return calls_->why_not(); }
  // How many signatures are recorded.
  std::size_t recordings() const noexcept { return calls_->size(); }

 private:
  // What fn returns for a tuple of arguments, and what a call does.
  template <typename Arguments>
  struct Returned;
  template <typename... A>
  struct Returned<std::tuple<A...>> {
    using One = std::remove_cvref_t<decltype(internal::call_in_replica(std::declval<F&>(), std::declval<ReplicaContext&>(),
                                                                       std::declval<A&>()...))>;
    using All = std::conditional_t<std::is_void_v<One>, void, PerReplica<One>>;
    static constexpr bool can_be_kept = std::is_void_v<One> || internal::has_signature_v<One>;
  };

  template <typename Arguments, typename... Args>
  typename Returned<Arguments>::All record(internal::RecordedCall& call, internal::SignatureOf& signature,
                                           std::vector<Arguments>& own, const Args&... args) {
    using Result = typename Returned<Arguments>::One;
    call.take_inputs(signature);  // the leaves of `own` are the recording's tensors now
    const auto body = [&](ReplicaContext& context, auto&& use) {
      const int replica = context.local_replica_id();
      call.recording().begin(replica);
      use([&] {
        return std::apply([&](auto&... mine) -> Result { return internal::call_in_replica(fn_, context, mine...); },
                          own[static_cast<std::size_t>(replica)]);
      });
      call.recording().end(replica);
    };
    const bool is_done = calls_->record(call, [&] {
      if constexpr (std::is_void_v<Result>) {
        strategy_.run([&](ReplicaContext& context) { body(context, [](auto&& fn) { fn(); }); });
      } else {
        call.results() = detached(strategy_.run([&](ReplicaContext& context) {
          std::optional<Result> result;
          body(context, [&](auto&& fn) { result.emplace(fn()); });
          return std::move(*result);
        }));
      }
    });
    if (!is_done) return strategy_.run(fn_, args...);
    return replay<Arguments>(call, signature);
  }

  template <typename Arguments>
  typename Returned<Arguments>::All replay(internal::RecordedCall& call, const internal::SignatureOf& signature) {
    using Result = typename Returned<Arguments>::One;
    calls_->replay(call, signature);
    if constexpr (!std::is_void_v<Result>) return handed_out(call, std::any_cast<const PerReplica<Result>&>(call.results()));
  }

  template <typename Result>
  static PerReplica<Result> detached(PerReplica<Result> results) {
    auto values = results.values();
    for (auto& value : values) nest::for_each_leaf(value, internal::DetachLeaves());
    return PerReplica<Result>(std::move(values));
  }
  template <typename Result>
  static PerReplica<Result> handed_out(internal::RecordedCall& call, const PerReplica<Result>& results) {
    auto values = results.values();
    for (auto& value : values) nest::for_each_leaf(value, internal::HandOutLeaves{call});
    return PerReplica<Result>(std::move(values));
  }

  Strategy& strategy_;
  F fn_;
  std::unique_ptr<internal::RecordedCalls> calls_;
};

template <typename F>
Function<std::decay_t<F>> Strategy::function(F&& fn, const FunctionOptions& options) {
  return Function<std::decay_t<F>>(*this, std::forward<F>(fn), options);
}

}  // namespace lockstep

#pragma once

#include <cstddef>
#include <memory>
#include <optional>
#include <string>
#include <type_traits>
#include <utility>
#include <vector>

#include "lockstep/base/deadline.h"
#include "lockstep/ps/coordinator_options.h"
#include "lockstep/ps/scheduling.h"

namespace lockstep {

class ParameterServerStrategy;
namespace ps {
struct CoordinatorStatistics;
}  // namespace ps

// Runs functions on whichever worker is free (ps/remote_function.h says which functions).
//
//   auto loss = coordinator.schedule([](data::Iterator& batches, at::Tensor scale) { return train_step(batches, scale); },
//                                    iterator, scale);
//   coordinator.join();
//   report(loss.get());
//
// A function runs once at least: when its worker is lost it is run again elsewhere, from its beginning. The others go on
// meanwhile; when no worker is there everything waits. A worker that is back is used again; its per-worker values are made
// anew, so that iterators begin again.
//
// The first error of a function is thrown by the next schedule(), join() or done(), once. By then nothing runs any more: queued
// functions are cancelled, those that run are asked to end (WorkerContext::is_cancelled) and waited for. Afterwards the
// coordinator is as new. Later errors are only in their RemoteValues. A parameter server that is away too often is
// PsUnavailable.
// A function whose per-worker input could not be made fails with kFailedPrecondition that says why.
//
// Tensors given as arguments are copied, unless they were moved here. Thread-safe. A handle: copies name the same coordinator.
// When the last one goes, and the strategy that has it, what has not run is aborted; what runs is waited for a few seconds, and
// then left to itself.
class ClusterCoordinator {
 public:
  // Throws kInvalidArgument without workers, for two of one name, and when two functions were registered under one name. Does
  // not wait for the workers.
  explicit ClusterCoordinator(std::vector<WorkerLink> workers, const CoordinatorOptions& options = {});
  // Of the strategy's workers. A strategy has one: another one made of it is the same, and its options are not looked at; but
  // one that wants another max_staleness is kFailedPrecondition. hosted() makes it, when there is none yet.
  explicit ClusterCoordinator(ParameterServerStrategy& strategy, const CoordinatorOptions& options = {});

  friend bool operator==(const ClusterCoordinator& a, const ClusterCoordinator& b) { return a.state_ == b.state_; }

  std::size_t num_workers() const noexcept;
  // What waits, what runs, and who is there, now (ps/task_report.h).
  ps::CoordinatorStatistics statistics() const;

  // Returns at once, or when the queue has room. A PerWorkerValues argument becomes the component of the worker that runs the
  // function; a RemoteValue cannot be an argument (it does not compile).
  template <typename F, typename... Args>
  auto schedule(const F& function, Args&&... args) {
    using Calls = ps::InvocationOf<F>;
    using Value = typename Calls::Value;
    static_assert(Calls::kCanReturn,
                  "the result of the function cannot be sent: return tensors, numbers, strings or structures");
    auto slot = std::make_shared<ps::ResultOf<Value>>();
    put(ps::make_call(function, std::forward<Args>(args)...), slot);
    return RemoteValue<Value>(std::move(slot));
  }

  // Waits until every scheduled function has ended. With a deadline: kDeadlineExceeded, saying what is left and who is missing.
  void join();
  void join(const Deadline& deadline);
  // Whether every scheduled function has ended.
  bool done();

  // `value` with the RemoteValues in it replaced by what they get(): itself, and in vectors, maps, tuples and pairs.
  template <typename T>
  auto fetch(const T& value) const {
    return ps::fetch_all(value);
  }

  // What `function` makes on each worker, which keeps it. Made before the first closure that takes it; an error is that
  // closure's.
  template <typename F, typename... Args>
  auto create_per_worker_resource(const F& function, Args&&... args) {
    using Calls = ps::InvocationOf<F>;
    static_assert(Calls::kCanCreate, "the function must return the object");
    using Object = typename ps::Made<typename Calls::Result>::type;
    return PerWorkerValues<Object>(resources()->add(ps::make_call(function, std::forward<Args>(args)...)));
  }

  // The dataset that `function` makes on each worker: a data::Dataset(), or data::Dataset(const InputContext&), which says the
  // worker's index. A data::Dataset itself cannot be sent: the functions inside it cannot.
  template <typename F>
  PerWorkerDataset create_per_worker_dataset(const F& function) {
    static_assert(!std::is_same_v<F, data::Dataset>,
                  "a Dataset cannot be sent to workers, because of the functions in it: give a function that makes it");
    if constexpr (!std::is_same_v<F, data::Dataset>) {
      static_assert(std::is_same_v<typename ps::InvocationOf<F>::Value, data::Dataset>,
                    "the function must return a data::Dataset");
      return PerWorkerDataset(resources(), create_per_worker_resource(function));
    }
  }

 private:
  struct State;
  void require_max_staleness(std::optional<std::size_t> wanted) const;
  void put(ps::Call call, std::shared_ptr<ps::ResultSlot> slot);
  const std::shared_ptr<ps::ResourceTable>& resources() const noexcept;

  std::shared_ptr<State> state_;
};

}  // namespace lockstep

#pragma once

#include <ATen/core/Generator.h>
#include <c10/core/Device.h>

#include <atomic>
#include <chrono>
#include <functional>
#include <memory>
#include <mutex>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "lockstep/collective/communication_options.h"
#include "lockstep/collective/group.h"
#include "lockstep/device/devices.h"
#include "lockstep/device/replica_streams.h"
#include "lockstep/fwd.h"
#include "lockstep/replica/function_ref.h"
#include "lockstep/split/logical_devices.h"

namespace lockstep {

struct ReplicaSetOptions {
  CommunicationOptions communication = {};
  // Cores that LibTorch may use inside one replica's operations; 0: the process's cores divided by the replicas.
  int intra_op_threads = 0;
  // The replicas' random generators start from this seed and their replica id. Absent: from the seed that LibTorch's
  // own generator has at that moment (torch::manual_seed).
  std::optional<std::uint64_t> seed = std::nullopt;
  // The other processes of the job; null: there are none.
  std::shared_ptr<WorkerGroup> workers = nullptr;
  // Where these replicas' variables are made; null: here, one component on each replica's device.
  std::shared_ptr<VariableHost> variable_host = nullptr;
  // Those of each replica, of which the first is its device: see Note [split tensors]. Empty: it has but that one.
  std::vector<split::Home> logical_devices = {};
};

// The replicas of one strategy in this process: their devices, threads, random generators and meeting points.
//
// Note [replica threads]
// 1. Replica 0 runs on the thread that calls run(); replicas 1.. have a persistent thread each ("lockstep:rK"),
//    which waits for a job in its mailbox. Handing over costs well under a microsecond while the threads are warm.
// 2. Every replica runs with the caller's LibTorch settings (grad mode, autocast, ...), its own intra-op threads, its
//    device, its ReplicaContext on top of the mode stack and its own random generator.
// 3. An exception in one replica breaks the rendezvous, so that all others fail at their next meeting point. run()
//    returns when all have stopped, throws the first error with the others attached, and the set is usable again.
// 4. In merge() everybody meets; then replica 0's thread runs the function in cross-replica context while the others
//    stay in their mailbox loop, where a run() made by that function reaches them.
// 5. Variables and models share the set. When the strategy goes, its threads go; what is left can be read
//    outside run(), and a run() is an error.
class ReplicaSet : public std::enable_shared_from_this<ReplicaSet> {
 public:
  ReplicaSet(Strategy* strategy, std::vector<LogicalDevice> devices, const ReplicaSetOptions& options);
  ~ReplicaSet();
  ReplicaSet(const ReplicaSet&) = delete;
  ReplicaSet& operator=(const ReplicaSet&) = delete;

  // The strategy is going: ends the threads. Afterwards strategy() is null and run() throws kFailedPrecondition.
  void retire() noexcept;

  // The replicas of this process.
  int size() const noexcept;
  // Those of the whole job; this process's are [first_replica(), first_replica() + size()).
  int global_size() const noexcept;
  int first_replica() const noexcept;
  // The other processes of the job; null: there are none.
  WorkerGroup* workers() const noexcept;
  Strategy* strategy() const noexcept;
  void set_strategy(Strategy* strategy) noexcept;  // for the default strategy, whose replica is older than it
  const std::vector<LogicalDevice>& devices() const noexcept;
  // Throws kInvalidArgument when there is no such replica, as the generators' functions below do.
  c10::Device torch_device(int replica) const;
  const ReplicaSetOptions& options() const noexcept;
  // The replica's logical devices. Throws kUnimplemented where no DeviceAssignment has given it some.
  const split::Home& logical_devices(int replica) const;
  // The same, when it has that one: else kInvalidArgument.
  const split::Home& require_logical_device(int replica, int logical_device_id) const;
  int intra_op_threads() const noexcept;

  // Runs `body` once in every replica, at the same time, and returns when all are done. The caller must not be inside
  // one of this set's replicas; calls from several threads take turns. Throws what the first failing replica threw.
  void run(FunctionRef<void(ReplicaContext&)> body);

  // The same for work of the replicas that was recorded (Note [recorded steps]): `body` runs on the caller's thread, and all
  // who observe runs are told as of any other.
  void replay(FunctionRef<void()> body);

  // Set, the run() that follows is recorded in it; null: it is not. Outside run(). And what is set.
  void set_recording(Recording* recording) noexcept;
  Recording* recording() const noexcept;

  // Note [streams of replicas].
  const ReplicaStreams& streams() const noexcept;

  // Called by every replica inside run(): `body` runs once, on replica 0's thread, with what every replica gave as
  // `mine`, while all others wait. `name` must be a literal.
  using MergeBody = FunctionRef<void(std::span<void* const>)>;
  void merge(ReplicaContext& context, const char* name, void* mine, MergeBody body);

  // Replica r's end of the group of all replicas; only inside run().
  Group& group(int replica);

  // Calls around run(), on its caller's thread, while no replica computes: before and after an outermost one (what `before`
  // throws, run() throws), after an outermost one that has not failed (again), and after any that has failed, a run() in
  // merge_call too, before the error is thrown. They stop
  // when the token goes, which waits for a call that is under way.
  struct RunObserver {
    std::function<void()> before = nullptr;
    std::function<void()> after = nullptr;
    std::function<void()> failed = nullptr;
    std::function<void()> succeeded = nullptr;
  };
  std::shared_ptr<void> observe_runs(RunObserver observer);

  // True on the thread that is inside run() as its caller: in replica 0 and in merge_call's function.
  bool is_running_here() const noexcept;

  // How many run() calls have begun; changes tell that replicas may have changed their state.
  std::uint64_t runs() const noexcept;

  // The state of replica r's generator, a byte tensor, for checkpoints and for reproducing a run.
  at::Tensor generator_state(int replica) const;
  void set_generator_state(int replica, const at::Tensor& state);
  // Those of the replicas that are not on the CPU.
  std::vector<at::Generator> device_generators() const;
  // Every replica's generator restarts from `seed` and its replica id.
  void manual_seed(std::uint64_t seed);

  struct State;

 private:
  struct Observer;

  // Throws kFailedPrecondition where run() cannot be called.
  void require_runnable() const;

  std::unique_ptr<State> state_;
};

}  // namespace lockstep

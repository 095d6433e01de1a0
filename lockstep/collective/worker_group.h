#pragma once

#include <atomic>
#include <condition_variable>
#include <functional>
#include <memory>
#include <mutex>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "lockstep/collective/calls.h"
#include "lockstep/collective/canonical_sum.h"
#include "lockstep/collective/device_exchange.h"
#include "lockstep/collective/reduce_op.h"
#include "lockstep/collective/worker_bytes.h"
#include "lockstep/fwd.h"

namespace lockstep {

// What all workers threw together: see WorkerGroup. Nobody needs to be told.
class SharedFailure : public Error {
 public:
  SharedFailure(const Error& error, std::uint64_t number) : Error(error), number_(number) {}
  // Counted from 1 in its group.
  std::uint64_t number() const noexcept { return number_; }

 private:
  std::uint64_t number_;
};

// The workers of a job as one participant each: what a process does with the others on behalf of all its replicas.
//
// All workers make the same calls in the same order; before anything moves they compare what they are about to do. Where
// it differs all of them throw kInvalidArgument (another shape or dtype) or kFailedPrecondition (another call) with each
// side's view, and the group stays usable. Every other error is for good: the job has failed.
class WorkerGroup {
 public:
  // How long the coordinator may take to say why an engine's connection broke: a death is known in milliseconds, that a
  // worker has left in half a second.
  static constexpr std::chrono::seconds kVerdict{2};

  explicit WorkerGroup(std::unique_ptr<WorkerBytes> bytes, bool is_deterministic = true);
  ~WorkerGroup();
  WorkerGroup(const WorkerGroup&) = delete;
  WorkerGroup& operator=(const WorkerGroup&) = delete;

  const WorkerLayout& layout() const noexcept { return bytes_->layout(); }
  WorkerBytes& bytes() noexcept { return *bytes_; }
  Calls& calls() noexcept { return calls_; }

  // outputs[k] = the sum over all replicas of the job, in the canonical order (tree_sum.h). values[r][k] is local replica
  // r's k-th tensor; outputs have their shapes and dtypes and may be among them. Any device; the sums are made on the GPU
  // where all workers' values are on one and there is an engine for it, and in the CPU's memory otherwise.
  void sum(const char* what, std::span<const std::vector<at::Tensor>> values, std::span<at::Tensor> outputs);

  // One tensor of each local replica: all replicas', in replica order, on the first one's device. Shapes may differ.
  std::vector<at::Tensor> all_gather(const char* what, std::span<const at::Tensor> values);

  // They become worker 0's.
  void broadcast(const char* what, std::span<at::Tensor> values);

  // Everybody's message, by worker.
  std::vector<std::string> exchange(const char* what, const std::string& mine);

  void barrier(const char* what);

  // Makes an engine of its own between the machines' leaders, which all call it; null where this worker is none, or there
  // is one machine.
  using ChannelFactory = std::function<std::shared_ptr<Transport>(const std::string& name)>;
  void set_channel_factory(ChannelFactory factory) { make_channel_ = std::move(factory); }
  std::shared_ptr<Transport> new_channel();

  // New memory that all workers of this machine see, `bytes` for each (they may differ), by their place there. All workers
  // call it.
  std::shared_ptr<SharedBlocks> share(std::size_t bytes);

  // From now on GPU tensors go from GPU to GPU. `factory` makes engines of all workers, in the memory of `device`, the first
  // replica's; all workers call this, before the first call.
  void use_device_engine(c10::Device device, ChannelFactory factory);
  bool has_device_engine() const noexcept { return device_ != nullptr; }
  // No more engines are made.
  void forget_device_factory() { make_device_channel_ = nullptr; }
  // One more such engine. All workers call it.
  std::shared_ptr<Transport> new_device_channel();

  // How often all workers failed together, in a call that did not fit. Then a SharedFailure was thrown.
  std::uint64_t shared_failures() const noexcept { return shared_failures_.load(); }

  // Ends all calls, and those that come later, with `why`: the first reason that is given. From any thread.
  void abort(const Error& why) noexcept;
  // As abort, for what an engine says. It knows that a connection broke; whether the peer died, left, threw or gave up, and
  // whether it is not that peer but another that began it, the coordinator knows, and is given a moment to say first.
  void abort_by_engine(const Error& why) noexcept;
  std::optional<Error> failure() const;
  // Later calls throw `why`; the engines, in which nobody is any more, are left in peace.
  void close(const Error& why);
  // Called once, with the reason, from the thread that aborts.
  void on_abort(std::function<void(const Error&)> hook);

 private:
  struct Pack;

  // Runs `body` as the call `text`, alone.
  void call(const std::string& text, const std::function<void()>& body);
  // Compares what all workers are about to do, and gives everybody's `extra`.
  std::vector<std::string> compare(const std::string& text, const std::string& extra = {});
  std::vector<std::string> exchange_in_call(const char* what, const std::string& mine);
  // Whether all workers' values are where their GPU engine's are; compares too.
  bool are_on_device(const std::string& text, bool are_mine);
  std::vector<at::Tensor> gather_on_device(const char* what, std::span<const at::Tensor> values);
  Transport* one_level() const;
  std::vector<at::Tensor> gather_directly(Transport& transport, std::span<const at::Tensor> values,
                                          std::span<const std::string> shapes);
  void sum_on_levels(Pack& pack);
  void sum_everywhere(Pack& pack, std::span<const std::string> messages, std::size_t offset);
  void throw_if_failed() const;
  // Calls `make`, whose errors end the job: the others do not have them.
  std::shared_ptr<Transport> connect(const std::string& name, const std::function<std::shared_ptr<Transport>()>& make);

  // Const after construction.
  const std::unique_ptr<WorkerBytes> bytes_;
  const bool is_deterministic_;
  bool is_native_ = false;                 // between machines the engine's own sums are used
  SumPlan local_;                          // of this worker's replicas
  std::vector<std::size_t> brings_;        // by worker: how many subtrees its replicas are
  SumPlan everywhere_;                     // of all workers' subtrees at once
  std::unique_ptr<CanonicalSum> machine_;  // null: alone
  std::unique_ptr<CanonicalSum> network_;  // null: one machine, or not its leader

  // Set before the first call.
  ChannelFactory make_channel_;
  ChannelFactory make_device_channel_;
  std::unique_ptr<DeviceExchange> device_;  // null: no engine for GPUs

  // Used only between a call's meetings.
  int channels_ = 0;
  int device_channel_count_ = 0;

  // Own synchronisation.
  Calls calls_;
  std::atomic<std::uint64_t> shared_failures_{0};

  // One call at a time; held while it waits for the others, which is what a call is.
  std::mutex calling_;

  // Guarded by mu_.
  mutable std::mutex mu_;
  std::condition_variable failed_;
  std::optional<Error> failure_;
  std::vector<std::weak_ptr<Transport>> device_channels_;

  // Held while the hook runs, so that whoever takes it back waits for its end. Never with mu_.
  std::mutex hook_mu_;
  std::function<void(const Error&)> hook_;
};

}  // namespace lockstep

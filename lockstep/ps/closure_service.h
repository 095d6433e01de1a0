#pragma once

#include <chrono>
#include <functional>
#include <map>
#include <memory>
#include <string>

#include "lockstep/ps/closure_messages.h"
#include "lockstep/ps/rpc.h"
#include "lockstep/ps/worker_context.h"

namespace lockstep::ps {

struct ClosureServiceOptions {
  // When closures of one batch have run for so long the rest is given back.
  std::chrono::nanoseconds batch_time = std::chrono::milliseconds(5);
  // The same when their results have so many bytes: results that together are no message would be lost, and made again.
  std::uint64_t batch_bytes = std::uint64_t{16} << 20;
  // How long a batch waits for one that still runs, before it is given back whole.
  std::chrono::nanoseconds patience = std::chrono::seconds(1);
  // Called on the thread that runs closures, before the first: a strategy's scope is entered. What it gives is kept there.
  std::function<std::shared_ptr<void>()> enter = nullptr;
};

// The part of a worker task that runs closures, one at a time and all on one thread of its own (Note [a batch of closures]).
// The server that serves methods() must be gone before this is destroyed; stop() lets it go.
class ClosureService {
 public:
  // Throws kInvalidArgument when two functions were registered under one name.
  explicit ClosureService(WorkerTask task, const ClosureServiceOptions& options = {});
  ~ClosureService();
  ClosureService(const ClosureService&) = delete;
  ClosureService& operator=(const ClosureService&) = delete;

  // For an RpcServer.
  std::map<std::string, Method> methods();

  // What closures and the values given to them find by type. Before the first closure.
  template <typename T>
  void attach(std::shared_ptr<T> part) {
    context().attach(std::move(part));
  }

  // What it does now; `function` is readable. Thread-safe.
  closures::Status status() const;

  // The closure that runs is asked to end, and nothing is run any more.
  void stop();

 private:
  struct State;
  WorkerContext& context();

  std::unique_ptr<State> state_;
};

}  // namespace lockstep::ps

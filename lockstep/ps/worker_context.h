#pragma once

#include <cstdint>
#include <exception>
#include <map>
#include <memory>
#include <stop_token>
#include <string>
#include <typeindex>
#include <utility>

#include "lockstep/data/options.h"

namespace lockstep {

namespace ps {

// An object that a function made on a worker, or why it could not.
struct Resource {
  std::shared_ptr<void> object = nullptr;
  std::type_index type = typeid(void);
  std::exception_ptr failure = nullptr;
};

}  // namespace ps

// Which worker a process is.
struct WorkerTask {
  int index = 0;
  int num_workers = 1;
  std::string name = "/job:worker/task:0";
  int num_replicas_in_sync = 1;  // devices of the worker
};

// The worker that a closure runs on. A closure that takes a `WorkerContext&` first is given it. Used only on the thread that
// runs closures.
class WorkerContext {
 public:
  explicit WorkerContext(WorkerTask task) : task_(std::move(task)) {}

  int worker_index() const noexcept { return task_.index; }
  int num_workers() const noexcept { return task_.num_workers; }
  const std::string& task_name() const noexcept { return task_.name; }
  // What a dataset function is told: this worker's pipeline of all. Nothing is sharded by itself.
  InputContext input_context() const noexcept { return {task_.num_workers, task_.index, task_.num_replicas_in_sync}; }

  // Whether the coordinator no longer wants the closure that runs: a long one should look, and throw kCancelled.
  bool is_cancelled() const noexcept { return cancelled_.stop_requested(); }
  const std::stop_token& cancelled() const noexcept { return cancelled_; }

  // Things of this process that values find by their type, such as the client of the parameter servers.
  template <typename T>
  void attach(std::shared_ptr<T> part) {
    parts_[typeid(T)] = std::move(part);
  }
  // Null: there is none.
  template <typename T>
  std::shared_ptr<T> find() const {
    const auto found = parts_.find(typeid(T));
    return found == parts_.end() ? nullptr : std::static_pointer_cast<T>(found->second);
  }

  // The object that the coordinator knows by this number. Throws kFailedPrecondition with the reason when it could not be made
  // (what is called ClosureInputError elsewhere), kInvalidArgument when it is no T.
  template <typename T>
  std::shared_ptr<T> resource(std::uint64_t id) const {
    return std::static_pointer_cast<T>(find_resource(id, typeid(T)));
  }

  // For whoever runs the closures.
  std::map<std::uint64_t, ps::Resource>& resources() noexcept { return resources_; }
  void set_cancelled(std::stop_token cancelled) { cancelled_ = std::move(cancelled); }

 private:
  std::shared_ptr<void> find_resource(std::uint64_t id, std::type_index type) const;

  // Const after construction.
  const WorkerTask task_;

  std::map<std::type_index, std::shared_ptr<void>> parts_;
  std::map<std::uint64_t, ps::Resource> resources_;
  std::stop_token cancelled_;
};

}  // namespace lockstep

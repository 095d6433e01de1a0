#pragma once

#include <memory>
#include <string>
#include <vector>

#include "lockstep/collective/shm_transport.h"
#include "lockstep/collective/transport.h"

namespace lockstep {

// Which workers there are, where they are, and how many replicas each has.
struct WorkerLayout {
  int rank = 0;                      // of this worker
  std::vector<int> replicas = {1};   // by worker
  std::vector<int> machines = {0};   // by worker: its machine, counted from 0 in the order of first appearance
  std::vector<std::string> names{};  // by worker: "worker 2 (host7)"; for messages

  int size() const { return static_cast<int>(replicas.size()); }
  int local_replicas() const { return replicas[static_cast<std::size_t>(rank)]; }
  int total_replicas() const;
  int first_replica(int worker) const;
  int machine() const { return machines[static_cast<std::size_t>(rank)]; }
  int machine_count() const;
  // The workers of a machine, in order; the first leads it.
  std::vector<int> workers_of(int machine) const;
  // By machine.
  std::vector<int> leaders() const;
  std::string name_of(int worker) const;
};

// Bytes between all workers, on two levels: shared memory inside a machine, a network between the machines' first workers.
// All workers make the same calls in the same order, one at a time.
class WorkerBytes {
 public:
  // `machine` is null where a worker is alone on its machine, `network` where there is one machine and on workers that
  // do not lead theirs.
  WorkerBytes(WorkerLayout layout, std::shared_ptr<ShmTransport> machine, std::shared_ptr<Transport> network);

  const WorkerLayout& layout() const noexcept { return layout_; }
  bool is_leader() const noexcept { return machine_ == nullptr || machine_->rank() == 0; }
  ShmTransport* machine() const noexcept { return machine_.get(); }
  Transport* network() const noexcept { return network_.get(); }

  // Everybody's message, by worker. At most a few hundred bytes each.
  std::vector<std::string> exchange(const std::string& mine);

  // The same for any size.
  std::vector<std::vector<std::byte>> all_gather(ConstBytes mine);

  // `data` becomes worker 0's. Everybody gives the same size.
  void broadcast(Bytes data);
  // Inside each machine `data` becomes its leader's.
  void broadcast_in_machine(Bytes data);

  void abort(const Error& why) noexcept;

 private:
  std::vector<std::vector<std::byte>> gather_in_machine(ConstBytes mine);
  std::vector<std::vector<std::byte>> gather_between_machines(std::vector<std::vector<std::byte>> of_machine);

  // Const after construction.
  const WorkerLayout layout_;
  const std::shared_ptr<ShmTransport> machine_;
  const std::shared_ptr<Transport> network_;
};

}  // namespace lockstep

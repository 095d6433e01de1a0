#include "lockstep/collective/worker_hub.h"

#include <ATen/ATen.h>

#include "lockstep/base/error.h"
#include "lockstep/collective/reduce_values.h"
#include "lockstep/device/stream_fence.h"

namespace lockstep {

struct alignas(64) WorkerHub::Slot {
  std::span<const at::Tensor> inputs;
  std::span<at::Tensor> outputs;
  StreamFence ready;
  StreamFence done;  // this replica has read the others' results
};

class WorkerHub::Member final : public Group {
 public:
  Member(WorkerHub& hub, int local) : hub_(hub), local_(local) {}

  int rank() const override { return hub_.workers_.layout().first_replica(hub_.workers_.layout().rank) + local_; }
  int size() const override { return hub_.workers_.layout().total_replicas(); }

  void all_reduce(std::span<const at::Tensor> inputs, std::span<at::Tensor> outputs) override {
    publish(inputs, outputs);
    hub_.together(local_, "all_reduce", [&] {
      const auto all = hub_.all_inputs();
      hub_.workers_.sum("all_reduce", all, outputs);
      if (!outputs.empty()) hub_.given_.record(outputs[0].device());
    });
    if (local_ > 0) hub_.given_.block();
    if (local_ > 0)
      for (std::size_t k = 0; k < outputs.size(); ++k) outputs[k].copy_(hub_.slots_[0].outputs[k]);
    end_reading(outputs.empty() ? c10::Device(c10::kCPU) : outputs[0].device(), "the end of all_reduce");
  }

  std::vector<at::Tensor> all_gather(const at::Tensor& value) override {
    publish({&value, 1}, {});
    hub_.together(local_, "all_gather", [&] {
      std::vector<at::Tensor> mine;
      for (const auto& inputs : hub_.all_inputs()) mine.push_back(inputs[0].detach());
      hub_.gathered_ = hub_.workers_.all_gather("all_gather", mine);
      hub_.given_.record(mine[0].device());
    });
    if (local_ > 0) hub_.given_.block();
    std::vector<at::Tensor> values;
    for (int r = 0; r < size(); ++r) {
      const auto& theirs = hub_.gathered_[static_cast<std::size_t>(r)];
      const bool is_kept = local_ == 0;  // the others copy: results of different replicas share no memory
      values.push_back(r == rank() ? value : theirs.to(value.device(), theirs.scalar_type(), false, /*copy=*/!is_kept));
    }
    end_reading(value.device(), "the end of all_gather");
    return values;
  }

  void broadcast(at::Tensor& value, int root) override {
    const auto all = all_gather(value);
    if (root != rank()) value.copy_(all[static_cast<std::size_t>(root)]);
  }

  void barrier(const char* name) override {
    hub_.together(local_, name, [&] { hub_.workers_.barrier(name); });
  }

  void abort(const std::string& reason) noexcept override { hub_.rendezvous_.abort(reason); }

 private:
  // What others read of this replica's tensors is read before their memory is used for something else.
  void end_reading(c10::Device device, const char* name) {
    hub_.slots_[static_cast<std::size_t>(local_)].done.record(device);
    hub_.rendezvous_.meet(local_, name);
    for (int r = 0; r < hub_.rendezvous_.size(); ++r) hub_.slots_[static_cast<std::size_t>(r)].done.block();
  }

  void publish(std::span<const at::Tensor> inputs, std::span<at::Tensor> outputs) {
    Slot& mine = hub_.slots_[static_cast<std::size_t>(local_)];
    mine.inputs = inputs;
    mine.outputs = outputs;
    if (!inputs.empty()) mine.ready.record(inputs[0].device());
  }

  WorkerHub& hub_;
  const int local_;
};

WorkerHub::WorkerHub(Rendezvous& rendezvous, WorkerGroup& workers)
    : rendezvous_(rendezvous),
      workers_(workers),
      slots_(std::make_unique<Slot[]>(static_cast<std::size_t>(rendezvous.size()))) {
  for (int local = 0; local < rendezvous.size(); ++local) members_.push_back(std::make_unique<Member>(*this, local));
}

WorkerHub::~WorkerHub() = default;

Group& WorkerHub::group(int local_replica) { return *members_[static_cast<std::size_t>(local_replica)]; }

void WorkerHub::together(int local_replica, const char* name, const std::function<void()>& body) {
  rendezvous_.meet(local_replica, name);
  if (local_replica == 0) {
    error_ = nullptr;
    try {
      body();
    } catch (...) {
      error_ = std::current_exception();
    }
  }
  rendezvous_.meet(local_replica, "what the other workers gave", Rendezvous::Patience::kWatched);
  if (error_) std::rethrow_exception(error_);
}

std::vector<std::vector<at::Tensor>> WorkerHub::all_inputs() const {
  std::vector<std::vector<at::Tensor>> all;
  for (int r = 0; r < rendezvous_.size(); ++r) {
    auto& slot = slots_[static_cast<std::size_t>(r)];
    slot.ready.block();
    all.emplace_back(slot.inputs.begin(), slot.inputs.end());
  }
  for (std::size_t k = 0; k < all[0].size(); ++k) {
    std::vector<at::Tensor> same;
    for (const auto& inputs : all) {
      if (inputs.size() != all[0].size())
        throw Error(ErrorCode::kInvalidArgument,
                    "all_reduce: this worker's replicas gave different numbers of tensors; all must "
                    "give equally many");
      same.push_back(inputs[k]);
    }
    if (slots_[0].outputs.size() == all[0].size()) require_equal_values(same, "all_reduce");
  }
  return all;
}

}  // namespace lockstep

#include "lockstep/collective/local_group.h"

#include <ATen/ATen.h>

#include <optional>

#include "lockstep/base/error.h"
#include "lockstep/base/str.h"
#include "lockstep/collective/reduce_values.h"
#include "lockstep/device/stream_fence.h"

namespace lockstep {
namespace {

constexpr std::int64_t kSmallBytes = 16 << 10;

}  // namespace

struct alignas(64) LocalHub::Slot {
  std::span<const at::Tensor> inputs;
  std::span<at::Tensor> outputs;
  StreamFence ready;  // the inputs are there
  StreamFence done;   // this rank has written its chunks
};

class LocalHub::Member final : public Group {
 public:
  Member(LocalHub& hub, int rank) : hub_(hub), rank_(rank) {}

  int rank() const override { return rank_; }
  int size() const override { return hub_.rendezvous_.size(); }

  void all_reduce(std::span<const at::Tensor> inputs, std::span<at::Tensor> outputs) override {
    publish(inputs, outputs);
    meet("all_reduce");
    const auto error = mismatch();
    for (std::size_t k = 0; !error && k < inputs.size(); ++k) sum_my_chunk(k);
    end_reading(inputs.empty() ? at::Device(at::kCPU) : inputs[0].device(), "the end of all_reduce");
    // Only now: until everybody is here, the others still look at this rank's tensors.
    if (error) throw *error;
  }

  std::vector<at::Tensor> all_gather(const at::Tensor& value) override {
    publish({&value, 1}, {});
    meet("all_gather");
    std::vector<at::Tensor> values;
    for (int r = 0; r < size(); ++r) {
      const auto& theirs = slot(r).inputs[0];
      slot(r).ready.block();
      values.push_back(r == rank_ ? theirs : theirs.to(value.device(), theirs.scalar_type(), false, /*copy=*/true));
    }
    end_reading(value.device(), "the end of all_gather");
    return values;
  }

  void broadcast(at::Tensor& value, int root) override {
    publish({&value, 1}, {});
    meet("broadcast");
    if (rank_ != root) {
      slot(root).ready.block();
      value.copy_(slot(root).inputs[0]);
    }
    end_reading(value.device(), "the end of broadcast");
  }

  void barrier(const char* name) override { meet(name); }
  void abort(const std::string& reason) noexcept override { hub_.rendezvous_.abort(reason); }

 private:
  Slot& slot(int rank) { return hub_.slots_[static_cast<std::size_t>(rank)]; }
  void meet(const char* name) { hub_.rendezvous_.meet(rank_, name); }

  // What others read of this rank's tensors is read before their memory is used for something else.
  void end_reading(c10::Device device, const char* name) {
    slot(rank_).done.record(device);
    meet(name);
    for (int r = 0; r < size(); ++r) slot(r).done.block();
  }

  void publish(std::span<const at::Tensor> inputs, std::span<at::Tensor> outputs) {
    Slot& mine = slot(rank_);
    mine.inputs = inputs;
    mine.outputs = outputs;
    if (!inputs.empty()) mine.ready.record(inputs[0].device());
  }

  // Every rank compares the same slots and comes to the same answer.
  std::optional<Error> mismatch() {
    for (int r = 1; r < size(); ++r)
      if (slot(r).inputs.size() != slot(0).inputs.size())
        return Error(ErrorCode::kInvalidArgument,
                     str("all_reduce: replica 0 gave ", slot(0).inputs.size(), " tensors and replica ", r, " gave ",
                         slot(r).inputs.size(), "; all must give equally many"));
    for (std::size_t k = 0; k < slot(0).inputs.size(); ++k) {
      const auto& first = slot(0).inputs[k];
      for (int r = 1; r < size(); ++r) {
        const auto& other = slot(r).inputs[k];
        const bool is_alike = other.sizes() == first.sizes() && other.scalar_type() == first.scalar_type();
        const bool is_ordered = (first.is_contiguous() && other.is_contiguous()) || other.strides() == first.strides();
        if (!is_alike) return unequal_values_error(all(k), "all_reduce");
        if (!is_ordered)
          return Error(ErrorCode::kInvalidArgument,
                       lockstep::str("all_reduce: replica 0's tensor has strides ", first.strides(), " and replica ", r, "'s ",
                                     other.strides(), "; all must have one memory order (pass value.contiguous())"));
      }
    }
    return std::nullopt;
  }

  std::vector<at::Tensor> all(std::size_t k) {
    std::vector<at::Tensor> tensors;
    for (int r = 0; r < size(); ++r) tensors.push_back(slot(r).inputs[k]);
    return tensors;
  }

  void sum_my_chunk(std::size_t k) {
    const auto& mine = slot(rank_).inputs[k];
    const auto count = mine.numel();
    const auto bytes = static_cast<std::int64_t>(mine.element_size());
    auto [begin, end] = chunk_of(count, bytes, rank_, size());
    if (count * bytes <= kSmallBytes) {
      const bool is_owner = static_cast<int>(k % static_cast<std::size_t>(size())) == rank_;
      begin = 0;
      end = is_owner ? count : 0;
    }
    if (begin == end) return;
    std::vector<at::Tensor> inputs;
    std::vector<at::Tensor> outputs;
    for (int r = 0; r < size(); ++r) {
      slot(r).ready.block();
      inputs.push_back(slot(r).inputs[k]);
      outputs.push_back(slot(r).outputs[k]);
    }
    tree_sum_tensors(inputs, outputs, {begin, end});
  }

  LocalHub& hub_;
  const int rank_;
};

LocalHub::LocalHub(Rendezvous& rendezvous)
    : rendezvous_(rendezvous), slots_(std::make_unique<Slot[]>(static_cast<std::size_t>(rendezvous.size()))) {
  for (int rank = 0; rank < rendezvous.size(); ++rank) members_.push_back(std::make_unique<Member>(*this, rank));
}

LocalHub::~LocalHub() = default;

Group& LocalHub::group(int rank) { return *members_[static_cast<std::size_t>(rank)]; }

}  // namespace lockstep

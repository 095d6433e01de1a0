#include "lockstep/collective/device_sum.h"

#include <ATen/ATen.h>

#include <algorithm>

#include "lockstep/collective/chunk.h"

namespace lockstep {
namespace {

// Very long arrays go in pieces, so that what was received needs no more memory than this.
constexpr std::int64_t kPieceBytes = 256 << 20;

// Everything the plan adds, behind the inputs. The sum of everything goes straight to where it belongs, if it is given.
void carry_out_tensors(const SumPlan& plan, std::vector<at::Tensor>& operands, at::Tensor sum = {}) {
  for (std::size_t i = 0; i < plan.adds.size(); ++i) {
    const auto& [left, right] = plan.adds[i];
    const bool is_last = sum.defined() && i + 1 == plan.adds.size();
    operands.push_back(is_last ? at::add_out(sum, operands[left], operands[right]) : operands[left] + operands[right]);
  }
}

template <typename Part>
std::vector<Part> bytes_of_all(const std::vector<at::Tensor>& tensors) {
  std::vector<Part> parts;
  for (const auto& tensor : tensors) parts.push_back(tensor.defined() ? Part(bytes_of(tensor)) : Part());
  return parts;
}

}  // namespace

Bytes bytes_of(const at::Tensor& tensor) { return {static_cast<std::byte*>(tensor.data_ptr()), tensor.nbytes()}; }

std::vector<SumNode> leaves_of_worker(const WorkerLayout& layout, int worker) {
  return leaves_of(layout.first_replica(worker), layout.replicas[static_cast<std::size_t>(worker)]);
}

std::vector<at::Tensor> sum_subtrees(const SumPlan& plan, std::vector<at::Tensor> arrays, c10::Device device) {
  for (auto& array : arrays) array = array.to(device);
  carry_out_tensors(plan, arrays);
  std::vector<at::Tensor> sums;
  for (const auto operand : plan.operands) sums.push_back(arrays[operand]);
  return sums;
}

DeviceSum::DeviceSum(Transport& engine, const WorkerLayout& layout) : engine_(engine) {
  const int total = layout.total_replicas();
  std::vector<SumNode> all;
  for (int worker = 0; worker < layout.size(); ++worker) {
    const auto plan = plan_sums(leaves_of_worker(layout, worker), total);
    if (worker == layout.rank) local_ = plan;
    counts_.push_back(static_cast<std::int64_t>(plan.nodes.size()));
    all.insert(all.end(), plan.nodes.begin(), plan.nodes.end());
  }
  plan_ = plan_sums(all, total);
}

bool DeviceSum::brings_one_each() const noexcept {
  return std::ranges::all_of(counts_, [](std::int64_t count) { return count == 1; });
}

void DeviceSum::reduce(std::span<const at::Tensor> mine, const at::Tensor& result) {
  const auto step = kPieceBytes / static_cast<std::int64_t>(result.element_size());
  for (std::int64_t begin = 0; begin < result.numel(); begin += step) {
    const auto count = std::min(step, result.numel() - begin);
    std::vector<at::Tensor> pieces;
    for (const auto& array : mine) pieces.push_back(array.narrow(0, begin, count));
    reduce_piece(pieces, result.narrow(0, begin, count));
  }
}

void DeviceSum::reduce_piece(std::span<const at::Tensor> mine, const at::Tensor& result) {
  const auto size = static_cast<std::size_t>(engine_.size());
  const auto rank = static_cast<std::size_t>(engine_.rank());
  const auto chunk = [&](const at::Tensor& array, std::size_t r) {
    const auto [begin, end] =
        chunk_of(result.numel(), static_cast<std::int64_t>(result.element_size()), static_cast<int>(r), static_cast<int>(size));
    return array.narrow(0, begin, end - begin);
  };
  const auto own = chunk(result, rank);

  std::vector<at::Tensor> outgoing(size);
  std::vector<at::Tensor> incoming(size);
  std::vector<at::Tensor> operands;
  for (std::size_t r = 0; r < size; ++r) {
    std::vector<at::Tensor> parts;
    for (const auto& array : mine) parts.push_back(chunk(array, r));
    if (r == rank) {
      operands.insert(operands.end(), parts.begin(), parts.end());
      continue;
    }
    outgoing[r] = parts.size() == 1 ? parts[0] : at::cat(parts);
    incoming[r] = at::empty({counts_[r] * own.numel()}, result.options());
    for (std::int64_t i = 0; i < counts_[r]; ++i) operands.push_back(incoming[r].narrow(0, i * own.numel(), own.numel()));
  }
  engine_.all_to_all(bytes_of_all<ConstBytes>(outgoing), bytes_of_all<Bytes>(incoming));

  carry_out_tensors(plan_, operands, own);
  if (plan_.adds.empty()) own.copy_(operands[plan_.operands[0]]);
  std::vector<at::Tensor> parts;
  for (std::size_t r = 0; r < size; ++r) parts.push_back(chunk(result, r));
  engine_.all_gather(bytes_of_all<Bytes>(parts));
}

}  // namespace lockstep
